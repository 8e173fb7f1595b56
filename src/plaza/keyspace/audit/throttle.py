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
# How often traffic is measured, and how long before the first step.
MEASURE_SECONDS = 0.5
FIRST_MEASURE_SECONDS = 0.1
MAX_SLEEP_SECONDS = 3.0


class Throttle:
    """Sleeps between steps if other clients are active. The caller counts its own commands with `count_own`."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._own_commands = 0
        self._last_total: int | None = None
        self._measured_at = monotonic()
        self._step_started = monotonic()
        self.busy = False

    def count_own(self, commands: int) -> None:
        """Add to the audit's own commands, which are not traffic."""
        self._own_commands += commands

    async def begin(self) -> None:
        """Measure the traffic before the first step."""
        await self._measure()
        await asyncio.sleep(FIRST_MEASURE_SECONDS)
        await self._measure()
        self._step_started = monotonic()

    async def rest(self) -> None:
        """Sleep between two steps, in proportion to the duration of the last one."""
        worked = monotonic() - self._step_started
        if monotonic() - self._measured_at > MEASURE_SECONDS:
            await self._measure()
        if self.busy:
            await asyncio.sleep(min(worked * (1 / SHARE - 1), MAX_SLEEP_SECONDS))
        self._step_started = monotonic()

    async def _measure(self) -> None:
        nodes = self._valkey.primaries()
        total = sum([_total_commands(str(await node.call("INFO", "stats"))) for node in nodes])
        self._own_commands += len(nodes)
        elapsed = max(monotonic() - self._measured_at, 0.001)
        if self._last_total is not None:
            self.busy = (total - self._last_total - self._own_commands) / elapsed > TRAFFIC_PER_SECOND
        self._last_total, self._own_commands, self._measured_at = total, 0, monotonic()


def _total_commands(info: str) -> int:
    for line in info.splitlines():
        if line.startswith("total_commands_processed:"):
            return int(line.partition(":")[2])
    return 0
