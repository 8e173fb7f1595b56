"""Callers of a queue take turns, and a flood of one caller delays and displaces only its own requests."""

from __future__ import annotations

import asyncio

import pytest

from plaza.core.errors import Unavailable
from plaza.core.fair_queue import FairQueue


class WaitingRequests:
    """Requests that wait in a queue with one slot, which the test holds."""

    def __init__(self, limit: int) -> None:
        self.queue = FairQueue(1, limit, "Full.")
        self.served: list[str] = []

    async def open(self) -> None:
        await self.queue.enter("test")

    async def add(self, caller: str, *, preferred: bool = False) -> asyncio.Task[None]:
        async def wait() -> None:
            await self.queue.enter(caller.rstrip("0123456789"), preferred=preferred)
            self.served.append(caller)
            self.queue.leave()

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        return task


async def test_callers_take_turns() -> None:
    line = WaitingRequests(limit=10)
    await line.open()
    tasks = [await line.add(name) for name in ("mal1", "mal2", "mal3", "mal4", "ana1", "bob1", "ana2")]
    line.queue.leave()
    await asyncio.gather(*tasks)
    assert line.served == ["mal1", "ana1", "bob1", "mal2", "ana2", "mal3", "mal4"]


async def test_a_known_caller_is_served_first() -> None:
    line = WaitingRequests(limit=3)
    await line.open()
    flood = [await line.add(name) for name in ("mal1", "mal2", "mal3")]
    known = await line.add("ana", preferred=True)
    line.queue.leave()
    results = await asyncio.gather(known, *flood, return_exceptions=True)
    assert line.served == ["ana", "mal1", "mal2"]
    assert isinstance(results[-1], Unavailable), "the flood made room for the known caller"


async def test_a_full_queue_refuses_the_caller_with_the_longest_line() -> None:
    line = WaitingRequests(limit=4)
    await line.open()
    flood = [await line.add(f"mal{i}") for i in range(4)]
    with pytest.raises(Unavailable):
        await line.queue.enter("mal")
    ana = await line.add("ana")
    bob = await line.add("bob")
    line.queue.leave()
    results = await asyncio.gather(ana, bob, *flood, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 4 + [Unavailable] * 2
    assert line.served == ["mal0", "ana", "bob", "mal1"]


async def test_a_full_queue_of_single_requests_refuses_the_next() -> None:
    line = WaitingRequests(limit=2)
    await line.open()
    tasks = [await line.add(name) for name in ("ana", "bob")]
    with pytest.raises(Unavailable):
        await line.queue.enter("cia")
    line.queue.leave()
    await asyncio.gather(*tasks)
    assert line.served == ["ana", "bob"]


async def test_a_caller_who_gives_up_leaves_the_queue() -> None:
    line = WaitingRequests(limit=2)
    await line.open()
    ana, bob = await line.add("ana"), await line.add("bob")
    ana.cancel()
    await asyncio.gather(ana, return_exceptions=True)
    cia = await line.add("cia")
    line.queue.leave()
    await asyncio.gather(bob, cia)
    dee = await line.add("dee")
    dee.cancel()  # it has its slot already, or gets it at this moment
    await asyncio.gather(dee, return_exceptions=True)
    await asyncio.wait_for(line.queue.enter("eve"), 1)


async def test_a_slot_given_to_a_caller_who_gives_up_at_that_moment_is_not_lost() -> None:
    line = WaitingRequests(limit=2)
    await line.open()
    ana = await line.add("ana")
    line.queue.leave()
    ana.cancel()
    await asyncio.gather(ana, return_exceptions=True)
    await asyncio.wait_for(line.queue.enter("bob"), 1)
