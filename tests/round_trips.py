"""Counts sequential round trips, which a caller waits for; parallel calls count as one.

Calls are held back until the code can do nothing without their replies, and then sent together. The number of such
releases is the longest chain of calls, on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from plaza.core.valkey import Valkey

# Turns of the loop without a call: more than any chain of callbacks has.
QUIET_TURNS = 30


class RoundTripCounter:
    def __init__(self) -> None:
        self.count = 0
        self._held: list[asyncio.Future[None]] = []
        self._in_flight = 0
        self._over = False

    async def hold_and_send(self, send: Any) -> Any:
        if self._over:
            return await send()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(turn)
        await turn
        self._in_flight += 1
        try:
            return await send()
        finally:
            self._in_flight -= 1

    async def run(self, work: asyncio.Task[Any]) -> None:
        quiet = 0
        while not work.done():
            known = len(self._held)
            await asyncio.sleep(0)
            if self._in_flight or not self._held or len(self._held) != known:
                quiet = 0
                continue
            quiet += 1
            if quiet == QUIET_TURNS:
                self.count += 1
                self._release()
        self._over = True  # background work after the end is not counted
        self._release()

    def _release(self) -> None:
        waiting, self._held = self._held, []
        for turn in waiting:
            turn.set_result(None)


async def count_round_trips(valkey: Valkey, work: Awaitable[Any]) -> int:
    """Return how many sequential round trips some work takes."""
    counter = RoundTripCounter()
    call, batch = valkey.call, valkey.batch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(valkey, "call", lambda *a, **k: counter.hold_and_send(lambda: call(*a, **k)))
        patch.setattr(valkey, "batch", lambda *a, **k: counter.hold_and_send(lambda: batch(*a, **k)))
        task = asyncio.ensure_future(work)
        await counter.run(task)
        await task
    return counter.count
