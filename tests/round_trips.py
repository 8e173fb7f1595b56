"""Counts round trips in sequence, which is what a caller waits for; calls side by side are one.

Calls are held back until everything that can be done without their answers is done, and then let go together. How
often that happens is the length of the longest chain, whatever the machine's pace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from plaza.core.valkey import Valkey

# Turns of the loop in which nothing was called: more than any chain of callbacks here has.
QUIET_TURNS = 30


class RoundTripCounter:
    def __init__(self) -> None:
        self.count = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._answering = 0
        self._over = False

    async def go(self, send: Any) -> Any:
        if self._over:
            return await send()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn
        self._answering += 1
        try:
            return await send()
        finally:
            self._answering -= 1

    async def conduct(self, work: asyncio.Task[Any]) -> None:
        quiet = 0
        while not work.done():
            known = len(self._waiting)
            await asyncio.sleep(0)
            if self._answering or not self._waiting or len(self._waiting) != known:
                quiet = 0
                continue
            quiet += 1
            if quiet == QUIET_TURNS:
                self.count += 1
                self._let_go()
        self._over = True  # what goes on in the background is nobody's wait
        self._let_go()

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            turn.set_result(None)


async def count_round_trips(valkey: Valkey, work: Awaitable[Any]) -> int:
    """How many round trips in sequence some work takes."""
    rounds = RoundTripCounter()
    call, batch = valkey.call, valkey.batch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(valkey, "call", lambda *a, **k: rounds.go(lambda: call(*a, **k)))
        patch.setattr(valkey, "batch", lambda *a, **k: rounds.go(lambda: batch(*a, **k)))
        task = asyncio.ensure_future(work)
        await rounds.conduct(task)
        await task
    return rounds.count
