"""Webhooks: events as signed HTTP requests to the endpoints of other services."""
