"""The audit's own keys."""

from __future__ import annotations

from plaza.core.keyspace import Access, Catalogue, Key

AUDIT_RUNNING = Key(
    "audit:running",
    "string",
    "The report of the running audit so far.",
    of="the report, JSON",
    lifetime="2 minutes after the last progress, if its process died",
    ttl_seconds=120,
    read=Access.NOBODY,  # an example may contain a session token
)
AUDIT_LAST = Key(
    "audit:last",
    "string",
    "The report of the last audit.",
    of="the report, JSON",
    read=Access.NOBODY,  # an example may contain a session token
)

CATALOGUE = Catalogue.of("audit", globals(), {})
