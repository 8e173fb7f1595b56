"""Timers: each job runs once per interval, in one of any number of workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.leases import JOBS, Lease, LeaseLost, Leases
from plaza.core.timers import Timer, Timers
from plaza.core.valkey import Valkey
from tests.timeouts import within_time_limit

HOUR = 3600


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [JOBS])
    await functions.load()
    return functions


@pytest.fixture
def timers(functions: Functions, clock: ManualClock) -> Timers:
    return Timers(functions, Leases(functions, seconds=3), "worker-1", clock)


class Tidy:
    """A job that counts its runs and fails the first `failures` times."""

    def __init__(self) -> None:
        self.runs = 0
        self.failures = 0

    async def __call__(self, lease: Lease) -> str:
        self.runs += 1
        if self.failures:
            self.failures -= 1
            raise ValueError("the broom broke")
        return f"{self.runs} swept"


@pytest.fixture
def tidy() -> Tidy:
    return Tidy()


def count_runs(job: str, result: str) -> float:
    return metrics.REGISTRY.get_sample_value("plaza_job_runs_total", {"job": job, "result": result}) or 0.0


async def test_a_job_runs_at_once_and_then_at_its_interval(timers: Timers, tidy: Tidy, clock: ManualClock) -> None:
    timer = Timer("tidy", HOUR, tidy)
    await timers.run_if_due(timer)
    await timers.run_if_due(timer)
    assert tidy.runs == 1
    clock.advance(seconds=HOUR - 1)
    assert 0 < await timers.run_if_due(timer) <= 1
    clock.advance(seconds=1)
    await timers.run_if_due(timer)
    assert tidy.runs == 2


async def test_after_days_of_downtime_a_job_runs_once_and_keeps_its_interval(
    timers: Timers, tidy: Tidy, clock: ManualClock, redis_client: Any
) -> None:
    timer = Timer("tidy", HOUR, tidy)
    first = clock.now_ms()
    await timers.run_if_due(timer)
    clock.advance(days=3, seconds=100)
    for _ in range(3):
        await timers.run_if_due(timer)
    assert tidy.runs == 2
    due = int(await redis_client.hget(core.JOB("tidy"), "next_at"))
    assert due == first + 73 * HOUR * 1000


async def test_a_daily_job_runs_at_its_time_of_day(
    timers: Timers, tidy: Tidy, clock: ManualClock, redis_client: Any
) -> None:
    clock.set(1_700_000_000_000)  # 2023-11-14 22:13:20 UTC
    timer = Timer("tidy", 24 * HOUR, tidy, at_seconds=300)
    await timers.run_if_due(timer)
    assert int(await redis_client.hget(core.JOB("tidy"), "next_at")) == 1_700_006_700_000  # 2023-11-15 00:05:00


async def test_only_one_of_many_workers_runs_a_job(functions: Functions, clock: ManualClock) -> None:
    inside = max_inside = runs = 0

    async def slow(_: Lease) -> None:
        nonlocal inside, max_inside, runs
        runs, inside = runs + 1, inside + 1
        max_inside = max(max_inside, inside)
        await asyncio.sleep(0.05)
        inside -= 1

    timer = Timer("tidy", HOUR, slow)
    workers = [Timers(functions, Leases(functions), f"worker-{i}", clock) for i in range(20)]
    for _ in range(3):
        await asyncio.gather(*(worker.run_if_due(timer) for worker in workers))
        clock.advance(seconds=HOUR)
    assert (runs, max_inside) == (3, 1)


async def test_operators_see_the_result_of_a_job(
    timers: Timers, tidy: Tidy, clock: ManualClock, redis_client: Any
) -> None:
    done = count_runs("tidy", "done")
    await timers.run_if_due(Timer("tidy", HOUR, tidy))
    seen = await redis_client.hgetall(core.JOB("tidy"))
    assert int(seen.pop("duration_ms")) >= 0
    assert seen == {
        "state": "done",
        "started_at": str(clock.now_ms()),
        "ended_at": str(clock.now_ms()),
        "next_at": str(clock.now_ms() + HOUR * 1000),
        "result": "1 swept",
        "error": "",
        "runs": "1",
        "failures": "0",
        "worker": "worker-1",
    }
    assert count_runs("tidy", "done") == done + 1


async def test_a_failed_job_is_recorded_and_retried_with_growing_waits(
    timers: Timers, tidy: Tidy, clock: ManualClock, redis_client: Any
) -> None:
    timer = Timer("tidy", HOUR, tidy, retry_seconds=10)
    tidy.failures, failed = 3, count_runs("tidy", "failed")
    for wait in (10, 20, 40):
        with structlog.testing.capture_logs() as logs:
            await timers.run_if_due(timer)
        assert logs[0]["event"] == "job_failed"
        seen = await redis_client.hgetall(core.JOB("tidy"))
        assert (seen["state"], seen["error"]) == ("failed", "ValueError: the broom broke")
        assert int(seen["next_at"]) == clock.now_ms() + wait * 1000
        clock.advance(seconds=wait)
    await timers.run_if_due(timer)
    assert tidy.runs == 4
    assert (await redis_client.hget(core.JOB("tidy"), "failures")) == "0"
    assert count_runs("tidy", "failed") == failed + 3


async def test_retry_waits_never_exceed_the_interval(timers: Timers, tidy: Tidy, clock: ManualClock) -> None:
    timer = Timer("tidy", 60, tidy, retry_seconds=50)
    tidy.failures = 5
    for _ in range(6):
        await timers.run_if_due(timer)
        clock.advance(seconds=60)
    assert tidy.runs == 6


async def test_a_job_that_exceeds_its_timeout_fails(timers: Timers, redis_client: Any) -> None:
    async def hang(_: Lease) -> None:
        await asyncio.sleep(60)

    await timers.run_if_due(Timer("tidy", HOUR, hang, timeout_seconds=0.05))
    assert await redis_client.hget(core.JOB("tidy"), "error") == "It took longer than 0.05 s."


async def test_a_job_whose_worker_died_runs_again_when_its_lease_expires(
    functions: Functions, timers: Timers, tidy: Tidy, clock: ManualClock, redis_client: Any
) -> None:
    timer = Timer("tidy", HOUR, tidy)
    # The state that a killed worker leaves.
    args = (clock.now_ms(), 60_000, HOUR * 1000, 5000, "worker-0")
    assert (await functions.run("jobs_start", timer.keys, *args))[0]
    assert await timers.run_if_due(timer) <= 60
    assert tidy.runs == 0
    assert await redis_client.delete(core.LEASE("tidy"))  # a minute has passed
    await timers.run_if_due(timer)
    assert tidy.runs == 1


async def test_a_job_that_kills_its_workers_is_retried_with_growing_waits(
    functions: Functions, timers: Timers, clock: ManualClock, redis_client: Any
) -> None:
    timer = Timer("tidy", HOUR, Tidy(), retry_seconds=10)
    args = (HOUR * 1000, 10_000, "worker-0")
    for _ in range(2):
        assert (await functions.run("jobs_start", timer.keys, clock.now_ms(), 60_000, *args))[0]
        assert await redis_client.delete(core.LEASE("tidy"))
    assert await timers.run_if_due(timer) == pytest.approx(10)
    seen = await redis_client.hgetall(core.JOB("tidy"))
    assert (seen["state"], seen["error"]) == ("lost", "Its worker died.")


async def test_a_job_stopped_with_its_worker_is_due_at_once(timers: Timers, tidy: Tidy, redis_client: Any) -> None:
    inside = asyncio.Event()

    async def slow(_: Lease) -> None:
        inside.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(timers.run_if_due(Timer("tidy", HOUR, slow)))
    async with within_time_limit():
        await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await redis_client.get(core.LEASE("tidy")) is None
    await timers.run_if_due(Timer("tidy", HOUR, tidy))
    assert tidy.runs == 1
    assert await redis_client.hget(core.JOB("tidy"), "failures") == "0"


async def test_setting_next_at_to_zero_runs_a_job_now(timers: Timers, tidy: Tidy, redis_client: Any) -> None:
    timer = Timer("tidy", HOUR, tidy)
    await timers.run_if_due(timer)
    await redis_client.hset(core.JOB("tidy"), "next_at", 0)
    await timers.run_if_due(timer)
    assert tidy.runs == 2


@pytest.mark.parametrize("next_at", ["soon", "", "nan", "inf"])
async def test_an_unreadable_next_at_makes_a_job_due(
    timers: Timers, tidy: Tidy, redis_client: Any, next_at: str
) -> None:
    timer = Timer("tidy", HOUR, tidy)
    await timers.run_if_due(timer)
    await redis_client.hset(core.JOB("tidy"), "next_at", next_at)
    await timers.run_if_due(timer)
    assert tidy.runs == 2
    assert int(await redis_client.hget(core.JOB("tidy"), "next_at")) > 0


async def test_a_shorter_interval_applies_at_once(timers: Timers, tidy: Tidy, clock: ManualClock) -> None:
    await timers.run_if_due(Timer("tidy", 24 * HOUR, tidy))
    clock.advance(seconds=60)
    await timers.run_if_due(Timer("tidy", 60, tidy))
    assert tidy.runs == 2


async def test_a_run_that_lost_its_lease_is_cancelled_and_changes_nothing(
    functions: Functions, timers: Timers, clock: ManualClock, redis_client: Any
) -> None:
    fenced = count_runs("tidy", "fenced")

    async def stall(lease: Lease) -> None:
        # The lease expires, and another worker completes the job while this run goes on.
        await redis_client.delete(core.LEASE("tidy"))
        await Timers(functions, Leases(functions), "worker-2", clock).run_if_due(Timer("tidy", HOUR, Tidy()))
        with pytest.raises(LeaseLost):
            await lease.check()
        await asyncio.sleep(60)

    async with within_time_limit():
        await timers.run_if_due(Timer("tidy", HOUR, stall))
    seen = await redis_client.hgetall(core.JOB("tidy"))
    assert (seen["worker"], seen["state"], seen["result"]) == ("worker-2", "done", "1 swept")
    assert count_runs("tidy", "fenced") == fenced + 1


async def test_a_run_that_lost_its_lease_and_ends_changes_nothing(
    functions: Functions, timers: Timers, clock: ManualClock, redis_client: Any
) -> None:
    async def stall(_: Lease) -> str:
        await redis_client.delete(core.LEASE("tidy"))
        await Timers(functions, Leases(functions), "worker-2", clock).run_if_due(Timer("tidy", HOUR, Tidy()))
        return "the old run's result"

    await timers.run_if_due(Timer("tidy", HOUR, stall))
    assert await redis_client.hget(core.JOB("tidy"), "result") == "1 swept"
