"""Time as a thing that is handed in, so that a test can say what time it is.

Everything that decides by the time of day holds a `Clock`. Waiting and measuring do not: they use the loop's own
monotonic time, which nobody sets.
"""

from __future__ import annotations

import time


class Clock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def now_s(self) -> float:
        """Unix seconds, with their fraction."""
        return time.time()


class ManualClock(Clock):
    """A clock that stands still until someone moves it."""

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
        """Move on; a negative amount goes back, as real clocks do when they are corrected."""
        self._ms += round((seconds + days * 86_400) * 1000)
