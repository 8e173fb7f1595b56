"""The Lua library of `live`. Each file can use the files before it."""

from __future__ import annotations

from plaza.core.functions import Library
from plaza.live import model
from plaza.live.keys import CATALOGUE

_FILES = ("audience", "counts", "recording", "viewings", "heartbeats", "queries", "maintenance", "repair")
_CONSTANTS = (
    "SLOT_MS",
    "AWAY_MS",
    "DECLARED_FIELDS",
    "GRACE_MS",
    "SCORE_SHIFT",
    "MAX_PLACES",
    "MAX_SESSIONS",
    "MAX_UNDECLARED_PLACES",
    "MAX_UNDECLARED_SESSIONS",
    "MAX_CLAIMED_GROUPS",
    "MAX_GROUPS",
    "MAX_GROUPS_PER_HEARTBEAT",
    "MAX_NEW_EVENT_BYTES",
    "MAX_OPEN_PLACES",
    "NEW_EVENT",
    "NEW_PLACE",
    "NEW_VIEWING",
    "MAX_REFERRERS",
    "MAX_QUALITY_SITES",
    "UNKNOWN_COUNTRY",
)

LIBRARY = Library.read(
    "live",
    CATALOGUE,
    "plaza.live.lua",
    *_FILES,
    constants={name: getattr(model, name) for name in _CONSTANTS},
)
