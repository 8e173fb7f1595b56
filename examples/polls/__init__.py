"""An example domain: polls with options, one vote per user, and a list of popular polls."""
