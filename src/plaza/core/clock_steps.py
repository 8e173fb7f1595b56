"""Notices that a clock was set back, and makes due what would otherwise wait for the old time.

Time stored before the step is later than now: lifetimes are longer than declared, and due times are too far away. The
worker compares the clocks, its own and that of every Valkey primary, with the times that they last showed. Those are
stored, so a step while no worker runs is noticed too. A clock that jumps ahead needs nothing: what is due runs.

The latest time of all is stored as well. Tokens that were issued before the step are later than now; a process that
starts after it must know that, because its revocations have to be later still (`Clock.latest_ms`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from plaza.core.clock import Clock
from plaza.core.keys import CLOCKS
from plaza.core.leases import Lease
from plaza.core.number_parsing import parse_int
from plaza.core.timers import Timer
from plaza.core.valkey import Valkey

CHECK_SECONDS: Final = 5
# Clocks of several workers and nodes differ a little, and are corrected by a little all the time.
MIN_STEP_MS: Final = 2_000

# The field with the latest time of all clocks.
LATEST: Final = "latest"

# Makes due, or cuts, what a domain stored before the step.
OnSetBack = Callable[[], Awaitable[None]]

log = structlog.get_logger("plaza.clock")


class ClockSteps:
    """Compares the clocks with the times that they last showed."""

    def __init__(self, valkey: Valkey, clock: Clock, on_set_back: Sequence[OnSetBack] = ()) -> None:
        self._valkey = valkey
        self._clock = clock
        self._on_set_back = on_set_back

    def timer(self) -> Timer:
        return Timer("core.clock", CHECK_SECONDS, self._run)

    async def _run(self, _: Lease) -> str:
        step_ms = await self.check()
        return f"set back by {step_ms / 1000:.0f} s" if step_ms else ""

    async def check(self) -> int:
        """Return by how many milliseconds a clock was set back; 0 if none was. Two round trips, and one per primary."""
        before = {name: parse_int(ms) for name, ms in (await self._valkey.call("HGETALL", CLOCKS())).items()}
        now = await self._read_clocks()
        step_ms = max((before.get(name, 0) - ms for name, ms in now.items()), default=0)
        if step_ms < MIN_STEP_MS:
            step_ms = 0
        else:
            log.warning("clock_set_back", seconds=round(step_ms / 1000))
            for make_due in self._on_set_back:
                await make_due()
        latest = max(before.get(LATEST, 0), self._clock.latest_ms(), *now.values())
        # Last: if the process dies before, the next check finds the step again.
        fields = [part for name, ms in {**now, LATEST: latest}.items() for part in (name, ms)]
        await self._valkey.call("HSET", CLOCKS(), *fields)
        return step_ms

    async def _read_clocks(self) -> dict[str, int]:
        clocks = {"service": self._clock.now_ms()}
        for number, node in enumerate(self._valkey.primaries(), 1):
            seconds, microseconds = await node.call("TIME")
            clocks[f"valkey {number}"] = int(seconds) * 1000 + int(microseconds) // 1000
        return clocks


async def observe_latest(valkey: Valkey, clock: Clock) -> None:
    """Make a clock know the latest time that was shown before this process started. One round trip."""
    stored = parse_int(await valkey.call("HGET", CLOCKS(), LATEST), None)
    if stored is not None and stored > clock.now_ms():
        # The worker stores it every few seconds: tokens may have been issued since.
        clock.observe(stored + 2 * CHECK_SECONDS * 1000)
