"""Notifications: what others did that concerns a user, grouped by type and subject until it is read."""
