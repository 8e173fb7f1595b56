"""Backups beside live traffic, and restoring them. `docs/backups.md` says how to use them."""
