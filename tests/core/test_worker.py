"""Workers: real processes that are paused, killed and stopped, and a Valkey that becomes unavailable while they run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import text

from plaza.core import keys as core
from plaza.core.errors import Unavailable
from plaza.core.event_streams import stream_of
from plaza.core.events import Events
from plaza.core.functions import Functions
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.worker import LIBRARIES, Consumer, Event, Lease, Timer, Worker
from tests.core.worker_process import LEDGER, LIBRARY, STALE_SECONDS
from tests.processes import default_signals
from tests.servers import Cluster, Server, running_server
from tests.timeouts import connect_with_retries, within_time_limit
from tests.waiting import eventually


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [*LIBRARIES, LIBRARY])
    await functions.load()
    return functions


@dataclass
class WorkerProcess:
    """A worker process and the lines it printed."""

    process: asyncio.subprocess.Process
    lines: list[str]
    reading: asyncio.Task[None]

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, sig: signal.Signals) -> None:
        os.kill(self.pid, sig)


@contextlib.asynccontextmanager
async def started(role: str, place: Server | Cluster, folder: Path) -> AsyncIterator[WorkerProcess]:
    command = [sys.executable, "-m", "tests.core.worker_process", role, place.url, str(folder)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, preexec_fn=default_signals)
    lines: list[str] = []

    async def read() -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            lines.append(line.decode().strip())

    worker = WorkerProcess(process, lines, asyncio.create_task(read()))
    try:
        await eventually(lambda: lines and lines[0].startswith("started"))
        yield worker
    finally:
        if process.returncode is None:
            process.kill()  # works on a stopped process too
        await process.wait()
        await worker.reading


async def test_writes_of_a_worker_that_stalled_beyond_its_lease_are_refused(
    place: Server | Cluster, redis_client: Any, tmp_path: Path
) -> None:
    def has(worker: Any, report: str) -> bool:
        return any(line.startswith(report) for line in worker.lines)

    use_layout(Layout.BRACES if isinstance(place, Cluster) else Layout.PLAIN)
    sql = await Sql.open(Settings(data_dir=tmp_path))
    async with sql.begin() as tx:
        await tx.execute(text("CREATE TABLE written (token int, number int)"))
    async with started("timers", place, tmp_path) as first, started("timers", place, tmp_path) as second:
        stalled = await eventually(lambda: next((w for w in (first, second) if has(w, "half of ")), None))
        other = second if stalled is first else first
        stalled.send(signal.SIGSTOP)
        await eventually(lambda: has(other, "done "))
        stalled.send(signal.SIGCONT)
        await eventually(lambda: "sql refused" in stalled.lines)
        assert "valkey refused" in stalled.lines
        written = [int(line.split()[0]) for line in await redis_client.lrange(LEDGER("a"), 0, -1)]
        async with sql.read() as tx:
            rows = (await tx.execute(text("SELECT token FROM written ORDER BY rowid"))).scalars().all()
    assert written == sorted(written)  # the first run wrote nothing after the second started
    assert written.count(max(written)) == 40
    assert rows == sorted(rows)
    assert rows.count(max(rows)) == 40
    assert await redis_client.hget(core.JOB("long"), "state") == "done"
    await sql.close()
    use_layout(Layout.PLAIN)


async def test_no_event_is_lost_however_often_its_consumers_are_killed(
    place: Server | Cluster, functions: Functions, redis_client: Any, tmp_path: Path
) -> None:
    events = Events(functions)
    await events.ensure_group(stream_of("work", "ana"), "bench")
    for n in range(400):
        await events.emit("work", "ana", n=n)
    async with started("events", place, tmp_path) as survivor:
        for round_ in range(1, 3):
            async with started("events", place, tmp_path) as victim:
                await eventually(partial(_grown, redis_client, await redis_client.llen(LEDGER("events")) + 20))
                victim.send(signal.SIGKILL)
                await victim.process.wait()
            assert len(await redis_client.xinfo_consumers(stream_of("work", "ana").key, "bench")) <= round_ + 1
        await eventually(lambda: _settled(redis_client))
        assert survivor.process.returncode is None
    handled = {int(n) for n in await redis_client.lrange(LEDGER("events"), 0, -1)}
    assert handled == set(range(400))
    assert not await redis_client.exists(stream_of("work", "ana").dead_key)


async def _grown(redis_client: Any, size: int) -> bool:
    return bool(await redis_client.llen(LEDGER("events")) >= min(size, 400))


async def _settled(redis_client: Any) -> bool:
    (group,) = await redis_client.xinfo_groups(stream_of("work", "ana").key)
    return bool(group["pending"] == 0 and group["lag"] == 0)


async def test_a_stopped_worker_hands_over_at_once(
    place: Server | Cluster, functions: Functions, redis_client: Any, tmp_path: Path
) -> None:
    """SIGINT, as Ctrl-C sends it: asyncio cancels the worker."""
    async with started("events", place, tmp_path) as worker:
        for n in range(200):
            await Events(functions).emit("work", "ana", n=n)
        await eventually(lambda: _grown(redis_client, 5))
        worker.send(signal.SIGINT)
        async with within_time_limit():
            await worker.process.wait()
        idle = await redis_client.xpending_range(stream_of("work", "ana").key, "bench", "-", "+", 100)
        # Events that it fetched but did not handle look stale at once, so no worker waits for them.
        assert all(
            entry["time_since_delivered"] >= STALE_SECONDS * 1000 and entry["times_delivered"] == 0 for entry in idle
        )


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_several_workers_run_each_turn_of_a_job_once(functions: Functions) -> None:
    inside = most = 0
    runs: list[float] = []

    async def job(_: Lease) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        runs.append(time.monotonic())
        await asyncio.sleep(0.01)
        inside -= 1

    workers = [Worker(functions, [Timer("often", 0.2, job)]) for _ in range(4)]
    async with working(workers[0]), working(workers[1]), working(workers[2]), working(workers[3]):
        await eventually(lambda: len(runs) >= 6)
    assert most == 1
    assert len(runs) <= (runs[-1] - runs[0]) / 0.2 + 3  # without leases four workers would have run it 24 times


async def test_a_failing_job_does_not_stop_others(functions: Functions) -> None:
    runs: dict[str, int] = {"good": 0, "bad": 0}
    handled: list[str] = []

    async def good(_: Lease) -> None:
        runs["good"] += 1

    async def bad(_: Lease) -> None:
        runs["bad"] += 1
        raise ValueError("always")

    async def handle(event: Event) -> None:
        handled.append(event.id)
        raise ValueError("always")

    timers = [Timer("good", 0.05, good), Timer("bad", 0.05, bad, retry_seconds=0.01)]
    with structlog.testing.capture_logs() as logs:
        async with working(Worker(functions, timers, [Consumer("work", "bench", handle, retry_seconds=0.01)])):
            await Events(functions).emit("work", "ana", n=1)
            await eventually(lambda: runs["good"] >= 3 and runs["bad"] >= 3 and len(handled) >= 3)
    assert {line["event"] for line in logs} >= {"job_failed", "event_failed"}


async def test_a_worker_stops_in_bounded_time_and_releases_its_leases(functions: Functions, redis_client: Any) -> None:
    started_jobs: set[str] = set()

    async def slow(_: Lease) -> None:
        started_jobs.add("slow")
        await asyncio.sleep(0.2)
        started_jobs.add("slow ended")

    async def endless(_: Lease) -> None:
        started_jobs.add("endless")
        await asyncio.sleep(3600)

    async def uncancellable(_: Lease) -> None:
        started_jobs.add("uncancellable")
        for _turn in range(200):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)

    timers = [Timer("slow", 3600, slow), Timer("endless", 3600, endless), Timer("uncancellable", 3600, uncancellable)]
    task = asyncio.create_task(Worker(functions, timers, stop_seconds=1.0).run())
    await eventually(lambda: started_jobs >= {"slow", "endless", "uncancellable"})
    task.cancel()
    with structlog.testing.capture_logs() as logs:
        async with within_time_limit():
            await asyncio.wait([task])
    assert "slow ended" in started_jobs  # within the grace period
    assert await redis_client.get(core.LEASE("slow")) is None
    assert await redis_client.get(core.LEASE("endless")) is None
    assert await redis_client.hget(core.JOB("endless"), "state") == "stopped"
    (left,) = [line for line in logs if line["event"] == "jobs_did_not_stop"]
    assert left["jobs"] == ["uncancellable"]
    for stuck in [t for t in asyncio.all_tasks() if "_keep_running" in repr(t)]:
        while not stuck.done():
            stuck.cancel()
            await asyncio.sleep(0)


@pytest.mark.parametrize("append_only", ["yes", "no"])
async def test_a_worker_continues_after_valkey_was_killed_and_restarted(append_only: str) -> None:
    """With its data and without: then groups, schedules and libraries are created again."""
    runs: list[float] = []
    handled: list[str] = []

    async def job(_: Lease) -> None:
        runs.append(time.monotonic())

    async def handle(event: Event) -> None:
        handled.append(event.fields["n"])

    with running_server("--appendonly", append_only) as server:
        valkey = await connect_with_retries(server.url)
        functions = Functions(valkey, LIBRARIES)
        await functions.load()
        worker = Worker(functions, [Timer("often", 0.1, job)], [Consumer("work", "bench", handle)])
        async with working(worker):
            await Events(functions).emit("work", "ana", n=1)
            await eventually(lambda: runs and handled == ["1"])
            server.stop(signal.SIGKILL)
            await asyncio.sleep(0.3)
            server.start()
            before = len(runs)
            await eventually(lambda: len(runs) > before)
            await eventually(lambda: _emitted(functions))
            await eventually(lambda: "2" in handled)
        await valkey.close()


async def _emitted(functions: Functions) -> bool:
    with contextlib.suppress(Unavailable):
        return bool(await Events(functions).emit("work", "ana", n=2))
    return False


async def test_a_deleted_stream_is_created_again(functions: Functions, redis_client: Any) -> None:
    handled: list[str] = []

    async def handle(event: Event) -> None:
        handled.append(event.fields["n"])

    async with working(Worker(functions, [], [Consumer("work", "bench", handle)])):
        await Events(functions).emit("work", "ana", n=1)
        await eventually(lambda: handled == ["1"])
        await redis_client.delete(stream_of("work", "ana").key)
        await Events(functions).emit("work", "ana", n=2)
        await eventually(lambda: handled == ["1", "2"])


async def test_the_timers_of_core_run(functions: Functions, redis_client: Any) -> None:
    async def handle(_: Event) -> None:
        return None

    async with working(Worker(functions, [], [Consumer("work", "bench", handle)])):
        await eventually(lambda: redis_client.hget(core.JOB("core.memory"), "result"))
        await eventually(lambda: redis_client.hget(core.JOB("core.libraries"), "result"))
        if functions.valkey.clustered:
            await eventually(lambda: redis_client.hget(core.JOB("core.settle"), "result"))
