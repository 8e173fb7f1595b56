"""The Lua of sessions.

It is not loaded alone. The domain that keeps data per session builds its library on it (`base=`), because a request's
session and its work are one atomic step; on a cluster, projections of the same session must share one outbox.
"""

from __future__ import annotations

from typing import Final

from plaza.core.functions import Library
from plaza.core.keyspace import Catalogue

# Beyond it the oldest session of the user ends.
MAX_SESSIONS_PER_USER: Final = 50
# How long the hash of a replaced session stays: far longer than settling its projections takes.
REPLACED_MS: Final = 86_400_000

LIBRARY = Library.read(
    "sessions",
    Catalogue("sessions", {}, {}),
    "plaza.sessions.lua",
    "sessions",
    constants={"MAX_SESSIONS_PER_USER": MAX_SESSIONS_PER_USER, "REPLACED_MS": REPLACED_MS},
)
