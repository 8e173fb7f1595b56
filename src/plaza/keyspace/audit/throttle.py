"""Slows the audit down while other clients use the server.

Alone, the audit runs at full speed. While others send commands, it works only a share of the time and sleeps the rest.
However expensive one step is, other clients lose no more than that share.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from plaza.core.valkey import Valkey

# The share of time that the audit works while others use the server.
SHARE = 0.15
# More commands per second than this, sent by others, count as traffic. A worker alone sends a few dozen.
TRAFFIC_PER_SECOND = 300
# How often traffic is measured, and for how long. The audit sends nothing meanwhile: Valkey counts the commands inside
# a Lua function too, so the audit cannot subtract its own.
MEASURE_SECONDS = 2.0
WINDOW_SECONDS = 0.1
MAX_SLEEP_SECONDS = 3.0


class Throttle:
    """Sleeps between steps if other clients are active."""

    def __init__(self, valkey: Valkey, share: float = SHARE) -> None:
        self._valkey = valkey
        self._share = share
        self._measured_at = 0.0
        self._step_started = 0.0
        self.busy = False

    async def begin(self) -> None:
        """Measure the traffic before the first step."""
        await self._measure(WINDOW_SECONDS)
        self._step_started = monotonic()

    async def rest(self) -> None:
        """Sleep between two steps, in proportion to the duration of the last one, and measure the traffic."""
        worked = monotonic() - self._step_started
        pause = min(worked * (1 / self._share - 1), MAX_SLEEP_SECONDS) if self.busy else 0.0
        if monotonic() - self._measured_at > MEASURE_SECONDS:
            await self._measure(max(pause, WINDOW_SECONDS))
        elif pause:
            await asyncio.sleep(pause)
        self._step_started = monotonic()

    async def _measure(self, seconds: float) -> None:
        """Sleep, and count what others send meanwhile. Two round trips per primary."""
        before, started = await self._total_commands(), monotonic()
        await asyncio.sleep(seconds)
        others = await self._total_commands() - before - len(self._valkey.primaries())  # without its own INFO
        self._measured_at = monotonic()
        self.busy = others / max(self._measured_at - started, 0.001) > TRAFFIC_PER_SECOND

    async def _total_commands(self) -> int:
        """The number of commands that the primaries have processed."""
        return sum([_total(str(await node.call("INFO", "stats"))) for node in self._valkey.primaries()])


def _total(info: str) -> int:
    for line in info.splitlines():
        if line.startswith("total_commands_processed:"):
            return int(line.partition(":")[2])
    return 0
