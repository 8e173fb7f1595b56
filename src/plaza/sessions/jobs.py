"""Sessions' background job: end idle sessions and the oldest above the limit, which bounds their memory."""

from __future__ import annotations

from typing import Final

from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.sessions.service import Sessions

# Often enough that a wave of new sessions does not exceed the limit by much.
CLEAN_SECONDS: Final = 30.0


def timers(sessions: Sessions) -> list[Timer]:
    async def clean(_: Lease) -> str:
        return f"{await sessions.clean()} sessions ended"

    return [Timer("shop.sessions", CLEAN_SECONDS, clean)]
