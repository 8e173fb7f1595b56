"""Runs operations of Plaza and of another service at the same time, for a while."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence

from tests.other_services.running import PlazaBesideOthers
from tests.waiting import eventually

# `INTERLEAVE_SECONDS=60 pytest tests/other_services -k interleave` runs each test for a minute.
SECONDS = float(os.environ.get("INTERLEAVE_SECONDS", "1.5"))
WRITERS = 8
# On a busy machine, even if that takes longer.
MIN_OPERATIONS = 40

USERS = [f"user{n}" for n in range(6)]

Operation = Callable[[random.Random], Awaitable[None]]


def is_ours(dice: random.Random) -> bool:
    """Whether Plaza runs an operation, or the other service."""
    return dice.random() < 0.5


class Slots:
    """Lets one operation at a time change a relation, such as one user's like of one post."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._in_use: Counter[Hashable] = Counter()
        self._closed: set[Hashable] = set()

    @contextlib.asynccontextmanager
    async def take(self, slot: Hashable, *parts: Hashable) -> AsyncIterator[bool]:
        """Take a relation of some things. Gives False if one of them is being deleted."""
        async with self._locks[slot]:
            if not self._closed.isdisjoint(parts):
                yield False
                return
            self._in_use.update(parts)
            try:
                yield True
            finally:
                self._in_use.subtract(parts)

    async def close(self, part: Hashable) -> None:
        """Wait until no operation uses a thing, and allow no more: it is going to be deleted."""
        self._closed.add(part)
        await eventually(lambda: not self._in_use[part])


async def interleave(beside: PlazaBesideOthers, operations: Sequence[Operation], *, worker: bool = True) -> set[str]:
    """Run random operations in many tasks, beside Plaza's worker and repairs. Returns the key families with findings.

    A repair waits for half a second, and on a busy machine another service may take longer between two commands.
    """
    deadline, done = time.monotonic() + SECONDS, 0
    found: set[str] = set()

    async def write(seed: int) -> None:
        nonlocal done
        dice = random.Random(seed)
        while time.monotonic() < deadline or done < MIN_OPERATIONS:
            await dice.choice(operations)(dice)
            done += 1

    async def repair() -> None:
        while True:
            found.update(group.family for group in (await beside.repair()).groups)

    beside_them = [asyncio.create_task(repair())]
    if worker:
        beside_them.append(asyncio.create_task(beside.plaza.worker.run()))
    try:
        await asyncio.gather(*(write(seed) for seed in range(WRITERS)))
        assert not beside_them[0].done(), "a repair failed"
    finally:
        for task in beside_them:
            task.cancel()
        await asyncio.wait(beside_them)
    await beside.plaza.core.functions.outbox.drain()
    return found
