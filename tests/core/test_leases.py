"""Leases: one holder at a time, and one who fell behind cannot write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.core import keys as core
from plaza.core.functions import Functions
from plaza.core.leases import JOBS, Lease, LeaseHeld, LeaseLost, Leases
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from tests.timeouts import TIME_LIMIT_SECONDS, within_time_limit
from tests.waiting import eventually


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [JOBS])
    await functions.load()
    return functions


@pytest.fixture
def leases(functions: Functions) -> Leases:
    """Leases that nobody here loses unless someone takes them away."""
    return Leases(functions, seconds=30)


@pytest.fixture
def short(functions: Functions) -> Leases:
    """Leases that are renewed every second: long enough for a busy machine to come to it."""
    return Leases(functions, seconds=3)


async def test_of_many_who_want_a_lease_one_has_it(leases: Leases) -> None:
    held = refused = 0

    async def want() -> None:
        nonlocal held, refused
        try:
            async with leases.hold("tidy"):
                held += 1
                await eventually(lambda: refused == 49)
        except LeaseHeld:
            refused += 1

    await asyncio.gather(*(want() for _ in range(50)))
    assert (held, refused) == (1, 49)


async def test_who_waits_gets_it_next(leases: Leases) -> None:
    order = []

    async def turn(name: int) -> None:
        async with leases.hold("tidy", wait=TIME_LIMIT_SECONDS):
            order.append(name)
            await asyncio.sleep(0.01)
            order.append(name)

    await asyncio.gather(*(turn(i) for i in range(5)))
    assert order[::2] == order[1::2]  # never two at once
    assert sorted(order[::2]) == [0, 1, 2, 3, 4]


async def test_a_lease_lasts_as_long_as_its_block(short: Leases, redis_client: Any) -> None:
    async def shortened() -> None:
        """As if most of it had passed."""
        assert await redis_client.pexpire(core.LEASE("tidy"), 2_000)

    async def renewed() -> bool:
        return bool(await redis_client.pttl(core.LEASE("tidy")) > 2_000)

    async with short.hold("tidy"):
        for _ in range(2):
            await shortened()
            await eventually(renewed)
        with pytest.raises(LeaseHeld):
            async with short.hold("tidy"):
                raise AssertionError("two had it")


async def test_a_lease_is_free_after_its_block_even_if_that_fails(leases: Leases, redis_client: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        async with leases.hold("tidy"):
            raise ZeroDivisionError
    assert await redis_client.get(core.LEASE("tidy")) is None


async def test_tokens_only_grow(leases: Leases) -> None:
    tokens = []
    for _ in range(5):
        async with leases.hold("tidy") as fence:
            tokens.append(fence.token)
    assert tokens == sorted(set(tokens))


async def test_losing_the_lease_cancels_the_block(short: Leases, leases: Leases, redis_client: Any) -> None:
    async with leases.hold("tidy") as old:
        pass

    async def work() -> None:
        async with short.hold("tidy"):
            await redis_client.delete(core.LEASE("tidy"))  # as if it had run out while we were stalled,
            async with leases.hold("tidy"):  # and another has it now
                await asyncio.Event().wait()

    async with within_time_limit():
        with pytest.raises(LeaseLost):
            await work()
    with pytest.raises(LeaseLost):
        await old.check()


async def test_a_lease_that_ran_out_unnoticed_is_kept_if_nobody_took_it(short: Leases, redis_client: Any) -> None:
    async with short.hold("tidy") as fence:
        await redis_client.delete(core.LEASE("tidy"))
        assert await eventually(lambda: redis_client.get(core.LEASE("tidy"))) == str(fence.token)
        await fence.check()


async def test_a_cancelled_holder_gives_its_lease_back(leases: Leases, redis_client: Any) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with leases.hold("tidy"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    async with within_time_limit():
        await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await redis_client.get(core.LEASE("tidy")) is None


async def test_check_knows_when_another_has_taken_over(functions: Functions, leases: Leases) -> None:
    async with leases.hold("tidy") as first:
        await first.check()
    async with leases.hold("tidy") as second:
        await second.check()
        with pytest.raises(LeaseLost):
            await first.check()
    with pytest.raises(LeaseLost):
        await Lease(functions, "never given", 1).check()


async def test_sql_refuses_a_run_that_was_overtaken(functions: Functions, sql: Sql) -> None:
    first, second = Lease(functions, "tidy", 1), Lease(functions, "tidy", 2)

    async def write(fence: Lease) -> None:
        async with sql.begin() as tx:
            await fence.fence_transaction(tx)

    await write(first)
    await write(first)
    await write(second)
    with pytest.raises(LeaseLost):
        await write(first)
    await write(second)
    await write(Lease(functions, "another job", 1))


async def test_of_two_runs_that_write_sql_at_once_the_older_never_comes_last(functions: Functions, sql: Sql) -> None:
    async def write(token: int) -> None:
        async with sql.begin() as tx:
            await Lease(functions, "tidy", token).fence_transaction(tx)
            landed.append(token)

    landed: list[int] = []
    await asyncio.gather(*(write(i % 7) for i in range(1, 60)), return_exceptions=True)
    assert landed == sorted(landed)
    assert landed[-1] == 6
