"""The clock as a dependency, so that tests can set the time.

Code that decides by the time of day takes a `Clock`. Waiting and measuring use monotonic time instead: the time of day
can be corrected, by an hour and in both directions (`clock_steps.py`).
"""

from __future__ import annotations

import time


class Clock:
    """The system clock."""

    __slots__ = ("_latest_ms",)

    def __init__(self) -> None:
        self._latest_ms = 0

    def now_ms(self) -> int:
        """Return Unix milliseconds."""
        now = time.time_ns() // 1_000_000
        if now > self._latest_ms:
            self._latest_ms = now
        return now

    def now_s(self) -> float:
        """Return Unix seconds with a fraction."""
        return time.time()

    def monotonic_s(self) -> float:
        """Return seconds that only grow, for durations."""
        return time.monotonic()

    def latest_ms(self) -> int:
        """Return the latest time that this clock has shown: later than now if it was set back."""
        return max(self.now_ms(), self._latest_ms)

    def observe(self, ms: int) -> None:
        """Count a time as shown, for example by the process before this one."""
        self._latest_ms = max(self._latest_ms, ms)


class ManualClock(Clock):
    """A clock that moves only by calls, for tests and simulations."""

    __slots__ = ("_monotonic_ms", "_ms")

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        super().__init__()
        self._ms = ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        self.observe(self._ms)
        return self._ms

    def now_s(self) -> float:
        return self._ms / 1000

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def set(self, ms: int) -> None:
        """Correct the time, as real clocks are."""
        self._ms = ms

    def advance(self, *, seconds: float = 0, days: float = 0) -> None:
        """Let time pass; with a negative amount, set the clock back."""
        ms = round((seconds + days * 86_400) * 1000)
        self._ms += ms
        self._monotonic_ms += max(ms, 0)
