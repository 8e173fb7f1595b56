"""What every domain stands on. Nothing here knows a domain."""
