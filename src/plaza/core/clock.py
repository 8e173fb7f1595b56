"""The clock as a dependency, so that tests can set the time.

Code that decides by the time of day takes a `Clock`. Waiting and measuring use monotonic time instead.
"""

from __future__ import annotations

import time


class Clock:
    """The system clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def now_s(self) -> float:
        """Return Unix seconds with a fraction."""
        return time.time()


class ManualClock(Clock):
    """A clock that moves only by calls, for tests and simulations."""

    __slots__ = ("_ms",)

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self._ms = ms

    def now_ms(self) -> int:
        return self._ms

    def now_s(self) -> float:
        return self._ms / 1000

    def set(self, ms: int) -> None:
        self._ms = ms

    def advance(self, *, seconds: float = 0, days: float = 0) -> None:
        """Move forward, or back by a negative amount, as real clocks do when they are corrected."""
        self._ms += round((seconds + days * 86_400) * 1000)
