"""The one key of the desk. Everything else is in SQL."""

from __future__ import annotations

from typing import Final

from plaza.core.keyspace import Catalogue, Key, KeyAccess

# Two days longer than a day's events are read, at most.
ACTIVE_SECONDS: Final = 40 * 86_400

ACTIVE_USERS = Key(
    "desk:active:<day>",
    "string",
    "Counts the users who did something on a day. It holds no names.",
    contains="a HyperLogLog",
    lifetime="40 days",
    ttl_seconds=ACTIVE_SECONDS,
    read=KeyAccess.ADMIN,
)

CATALOGUE = Catalogue.from_module("desk", globals(), {"day": r"[0-9]{4}-[0-9]{2}-[0-9]{2}"})
