"""Plaza inside other programs."""
