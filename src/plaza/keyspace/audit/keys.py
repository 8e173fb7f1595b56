"""The audit's own keys."""

from __future__ import annotations

from plaza.core.keyspace import Access, Catalogue, Key

AUDIT_RUNNING = Key(
    "audit:running",
    "string",
    "The audit that is under way, as far as it has come.",
    of="the report so far, JSON",
    lifetime="two minutes after the last page, if its process died",
    ttl_seconds=120,
    read=Access.NOBODY,  # an example may name a session's token
)
AUDIT_LAST = Key(
    "audit:last",
    "string",
    "What the last audit found.",
    of="the report, JSON",
    read=Access.NOBODY,  # an example may name a session's token
)

CATALOGUE = Catalogue.of("audit", globals(), {})
