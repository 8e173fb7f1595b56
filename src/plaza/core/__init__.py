"""Shared infrastructure of all domains. It imports none of them."""
