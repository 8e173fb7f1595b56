"""Leases: one process has a lease at a time, and a process that lost it cannot write."""

from __future__ import annotations

import asyncio
import time
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
    """Leases that last longer than any test."""
    return Leases(functions, seconds=30)


@pytest.fixture
def short(functions: Functions) -> Leases:
    """Leases that are renewed every second, which a busy machine still manages."""
    return Leases(functions, seconds=3)


async def test_only_one_of_many_callers_gets_the_lease(leases: Leases) -> None:
    held = refused = 0

    async def try_to_hold() -> None:
        nonlocal held, refused
        try:
            async with leases.hold("tidy"):
                held += 1
                await eventually(lambda: refused == 49)
        except LeaseHeld:
            refused += 1

    await asyncio.gather(*(try_to_hold() for _ in range(50)))
    assert (held, refused) == (1, 49)


async def test_a_waiting_caller_gets_the_lease_next(leases: Leases) -> None:
    order = []

    async def hold(name: int) -> None:
        async with leases.hold("tidy", wait=TIME_LIMIT_SECONDS):
            order.append(name)
            await asyncio.sleep(0.01)
            order.append(name)

    await asyncio.gather(*(hold(i) for i in range(5)))
    assert order[::2] == order[1::2]  # never two at once
    assert sorted(order[::2]) == [0, 1, 2, 3, 4]


async def test_a_lease_does_not_last_longer_because_the_clock_was_set_back(
    leases: Leases, redis_client: Any, valkey: Valkey
) -> None:
    """Valkey stores when a lease expires. After a step back that is an hour away."""
    await redis_client.set(core.LEASE("tidy"), "1", ex=3630)
    with pytest.raises(LeaseHeld):
        async with leases.hold("tidy"):
            pass
    assert 0 < await redis_client.pttl(core.LEASE("tidy")) <= 30_000


@pytest.mark.parametrize("left_ms", [0, 20, 300])
async def test_a_caller_gets_a_lease_that_expires_while_it_waits(
    leases: Leases, redis_client: Any, left_ms: int
) -> None:
    """A killed process leaves its lease. A caller that waits as long as the lease lasts is not refused."""
    for _ in range(5):
        if left_ms:
            await redis_client.set(core.LEASE("tidy"), "1", px=left_ms)
        async with leases.hold("tidy", wait=left_ms / 1000):
            pass


async def test_a_caller_that_waits_too_briefly_is_refused_in_time(leases: Leases, redis_client: Any) -> None:
    await redis_client.set(core.LEASE("tidy"), "1", px=60_000)
    async with asyncio.timeout(30):
        with pytest.raises(LeaseHeld):
            async with leases.hold("tidy", wait=0.3):
                raise AssertionError("two callers have the lease")


async def test_a_lease_is_renewed_while_its_block_runs(short: Leases, redis_client: Any) -> None:
    async def shorten() -> None:
        assert await redis_client.pexpire(core.LEASE("tidy"), 2_000)

    async def is_renewed() -> bool:
        return bool(await redis_client.pttl(core.LEASE("tidy")) > 2_000)

    async with short.hold("tidy"):
        for _ in range(2):
            await shorten()
            await eventually(is_renewed)
        with pytest.raises(LeaseHeld):
            async with short.hold("tidy"):
                raise AssertionError("two callers have the lease")


async def test_a_lease_is_released_when_its_block_fails(leases: Leases, redis_client: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        async with leases.hold("tidy"):
            raise ZeroDivisionError
    assert await redis_client.get(core.LEASE("tidy")) is None


async def test_tokens_only_grow(leases: Leases) -> None:
    tokens = []
    for _ in range(5):
        async with leases.hold("tidy") as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))


async def test_losing_the_lease_cancels_the_block(short: Leases, leases: Leases, redis_client: Any) -> None:
    async with leases.hold("tidy") as old:
        pass

    async def work() -> None:
        async with short.hold("tidy"):
            await redis_client.delete(core.LEASE("tidy"))  # as if it expired while this process stalled
            async with leases.hold("tidy"):  # another caller takes it
                await asyncio.Event().wait()

    async with within_time_limit():
        with pytest.raises(LeaseLost):
            await work()
    with pytest.raises(LeaseLost):
        await old.check()


async def test_an_expired_lease_is_renewed_if_no_other_caller_took_it(short: Leases, redis_client: Any) -> None:
    async with short.hold("tidy") as lease:
        await redis_client.delete(core.LEASE("tidy"))
        assert await eventually(lambda: redis_client.get(core.LEASE("tidy"))) == str(lease.token)
        await lease.check()


async def test_a_cancelled_block_releases_its_lease(leases: Leases, redis_client: Any) -> None:
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


async def test_check_fails_after_another_run_has_taken_over(functions: Functions, leases: Leases) -> None:
    async with leases.hold("tidy") as first:
        await first.check()
    async with leases.hold("tidy") as second:
        await second.check()
        with pytest.raises(LeaseLost):
            await first.check()
    with pytest.raises(LeaseLost):
        await Lease(functions, "unknown", 1).check()


async def test_sql_rejects_a_run_that_lost_its_lease(functions: Functions, sql: Sql) -> None:
    first, second = Lease(functions, "tidy", 1), Lease(functions, "tidy", 2)

    async def write(lease: Lease) -> None:
        async with sql.begin() as tx:
            await lease.fence_transaction(tx)

    await write(first)
    await write(first)
    await write(second)
    with pytest.raises(LeaseLost):
        await write(first)
    await write(second)
    await write(Lease(functions, "another job", 1))


async def test_concurrent_sql_writes_commit_in_token_order(functions: Functions, sql: Sql) -> None:
    async def write(token: int) -> None:
        async with sql.begin() as tx:
            await Lease(functions, "tidy", token).fence_transaction(tx)
            committed.append(token)

    committed: list[int] = []
    await asyncio.gather(*(write(i % 7) for i in range(1, 60)), return_exceptions=True)
    assert committed == sorted(committed)
    assert committed[-1] == 6


async def test_a_run_after_a_failover_that_lost_the_token_fences_the_run_before(
    leases: Leases, redis_client: Any
) -> None:
    async with leases.hold("tidy") as first:
        # The node that takes over has neither the lease nor its token.
        await redis_client.delete(core.LEASE("tidy"))
        await redis_client.set(core.FENCE("tidy"), first.token - 1)
        await eventually(lambda: time.time() * 1000 > first.token + 1)  # a failover takes longer
        async with leases.hold("tidy") as second:
            assert second.token > first.token
            with pytest.raises(LeaseLost):
                await first.check()
