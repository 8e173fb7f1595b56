"""Heartbeats and numbers that other services write by the document.

The documented keys belong to every service. Plaza's additional keys (countries, groups, viewers) follow them: when a
read or the worker notices that heartbeats are not counted, `HeartbeatFollower` counts them.
"""

from __future__ import annotations

import math
import time
from typing import Any

import structlog

from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.live.model import SCORE_SHIFT

PAGE_SIZE = 500
# Following a large audience takes a while. It uses at most a twentieth of the time, unless it takes less than this.
FREE_SECONDS = 0.05
PAUSE_FACTOR = 20

log = structlog.get_logger("plaza.live")


def to_ms(number: Any) -> int | None:
    """Return a time as whole Unix milliseconds; None if it is not a time. Fractions are cut off."""
    try:
        value = float(number)
    except (TypeError, ValueError):
        return None
    return int(value) if math.isfinite(value) and 0 <= value < SCORE_SHIFT else None


def count_unreadable(what: str, count: int, **where: str) -> None:
    """Count rows that another service wrote and that cannot be read. They are skipped."""
    if count:
        metrics.UNREADABLE_ROWS.labels("live").inc(count)
        log.warning("live_rows_unreadable", what=what, count=count, **where)


class HeartbeatFollower:
    """Counts heartbeats of other services in the additional keys of an audience."""

    def __init__(self, functions: Functions, clock: Clock) -> None:
        self._functions = functions
        self._clock = clock
        self._paused_until: dict[str, float] = {}

    async def follow(self, kind: str, audience: list[str], since_ms: int, *, forced: bool = False) -> bool:
        """Follow the heartbeats of an event or a session since a time. Returns False during the pause after a long run.

        One round trip per 500 viewers.
        """
        started = time.monotonic()
        if not forced and started < self._paused_until.get(audience[0], 0):
            return False
        position = ""
        while True:
            position, changed = await self._functions.run(
                "live_follow", audience, kind, since_ms, position, PAGE_SIZE, self._clock.now_ms()
            )
            if not position and changed >= 0:
                break
        seconds = time.monotonic() - started
        self._paused_until.pop(audience[0], None)
        if seconds > FREE_SECONDS:
            self._paused_until[audience[0]] = time.monotonic() + PAUSE_FACTOR * seconds
        return True
