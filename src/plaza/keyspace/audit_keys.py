"""The audit's own keys."""

from __future__ import annotations

from plaza.core.keyspace import Catalogue, Key, KeyAccess

AUDIT_RUNNING = Key(
    "audit:running",
    "string",
    "The report of the running audit so far.",
    contains="the report, JSON",
    lifetime="2 minutes after the last progress, if its process died",
    ttl_seconds=120,
    read=KeyAccess.NONE,  # an example may contain a session token
)
AUDIT_LAST = Key(
    "audit:last",
    "string",
    "The report of the last audit.",
    contains="the report, JSON",
    read=KeyAccess.NONE,  # an example may contain a session token
)
AUDIT_CHECKPOINT = Key(
    "audit:checkpoint",
    "string",
    "How far `plaza adopt` is, so that the next run continues there.",
    contains="the position of the scan and the findings so far, JSON",
    lifetime="until the run is complete, at most a day after its last progress",
    ttl_seconds=86_400,
    read=KeyAccess.NONE,  # an example may contain a session token
)
AUDIT_PRIMARIES = Key(
    "audit:primaries",
    "hash",
    "The primaries of Valkey when derived data was last complete. A new one may have lost writes in a failover.",
    contains="id of a server's run, if promoted with its replication id → the ranges of its slots",
    element_regex="[0-9a-f]{40}(-[0-9a-f]{40})?|embedded-[0-9a-f-]*",
    value_regex=r"(\d+-\d+(,\d+-\d+)*)?|<ms>",
    read=KeyAccess.ADMIN,
)

CATALOGUE = Catalogue.from_module("audit", globals(), {})
