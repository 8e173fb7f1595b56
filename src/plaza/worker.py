"""Runs background work: jobs by the clock, and consumers of events. Any number of workers may run.

`plaza serve` contains one, `plaza worker` is one alone; they share the work through leases and consumer groups. Each
timer and each consumer is a task of its own, so one that fails or hangs does not stop the others. Each continues by
itself when Valkey or SQL is available again.

A cancelled worker starts nothing new, gives running jobs some time to end, cancels the rest, and releases leases and
events, so that another worker continues at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from plaza.core import valkey_memory
from plaza.core.clock import Clock
from plaza.core.domain import Turn, WorkerLoop
from plaza.core.errors import Unavailable
from plaza.core.event_streams import all_streams
from plaza.core.events import EVENTS, Consumer, Event, Events
from plaza.core.functions import Functions
from plaza.core.leases import JOBS, LEASE_SECONDS, Lease, Leases
from plaza.core.outbox_recovery import ABANDONED_MS
from plaza.core.stream_consumer import StreamConsumer
from plaza.core.stream_watch import StreamWatch
from plaza.core.timers import Timer, Timers
from plaza.core.wrong_type import ExplainError, WrongKeyType, unexplained

__all__ = ["LIBRARIES", "Consumer", "Event", "Lease", "Timer", "Worker"]

# The Lua libraries that a worker needs.
LIBRARIES = (JOBS, EVENTS)

# Running jobs may take this long to end. Then they are cancelled, and get as long again to react.
STOP_SECONDS = 5.0

# Every cluster node is asked for the entries of each of its slots, which is most of the work of an idle worker. An
# entry is taken for abandoned after as long, so looking more often would settle it little earlier.
SETTLE_SECONDS = ABANDONED_MS // 1000

# The pause between restarts of a job, while Valkey is not available.
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0

log = structlog.get_logger("plaza.worker")


class TurnLoop:
    """Calls `turn` repeatedly; each call returns the seconds to pause.

    For timers, which all workers compete for, the pause has some random jitter. Otherwise all workers would wake at the
    same moment, and all but one without result.
    """

    def __init__(self, turn: Turn, *, jitter_seconds: float = 0.0) -> None:
        self.busy = False
        self.stopping = False
        self._turn = turn
        self._jitter_seconds = jitter_seconds

    def stop(self) -> None:
        self.stopping = True

    async def run(self) -> None:
        while not self.stopping:
            self.busy = True
            try:
                wait = await self._turn()
            finally:
                self.busy = False
            if not self.stopping:
                await asyncio.sleep(wait + random.uniform(0, self._jitter_seconds))


class Worker:
    """All timers and consumers of a process. `await worker.run()` runs until it is cancelled."""

    def __init__(
        self,
        functions: Functions,
        timers: Sequence[Timer] = (),
        consumers: Sequence[Consumer] = (),
        loops: Mapping[str, Turn | WorkerLoop] | None = None,
        *,
        clock: Clock | None = None,
        lease_seconds: float = LEASE_SECONDS,
        stop_seconds: float = STOP_SECONDS,
        explain: ExplainError = unexplained,
    ) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._stop_seconds = stop_seconds
        self._explain = explain
        running = Timers(functions, Leases(functions, lease_seconds), self.name, clock, explain)
        all_timers = [*timers, *core_timers(functions)]
        assert len({timer.name for timer in all_timers}) == len(all_timers), "two timers have the same name"
        self.timers = [timer.name for timer in all_timers]
        self._loops: dict[str, WorkerLoop] = {
            timer.name: TurnLoop(partial(running.run_if_due, timer), jitter_seconds=0.02) for timer in all_timers
        }
        self._loops |= {name: TurnLoop(loop) if callable(loop) else loop for name, loop in (loops or {}).items()}
        self._loops |= _consumer_loops(functions, consumers, self.name)

    async def run(self) -> None:
        log.info("worker_started", worker=self.name, jobs=len(self._loops))
        loops = self._loops.items()
        tasks = {name: asyncio.create_task(_keep_running(name, loop, self._explain), name=name) for name, loop in loops}
        try:
            await asyncio.wait(tasks.values())
        finally:
            await self._stop(tasks)
            log.info("worker_stopped", worker=self.name)

    async def _stop(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        for name, loop in self._loops.items():
            loop.stop()
            if not loop.busy:
                tasks[name].cancel()
        try:
            await asyncio.wait(tasks.values(), timeout=self._stop_seconds)
        finally:  # also if this task is cancelled again
            for task in tasks.values():
                task.cancel()
        await asyncio.wait(tasks.values(), timeout=self._stop_seconds)
        stuck = [name for name, task in tasks.items() if not task.done()]
        if stuck:
            log.error("jobs_did_not_stop", jobs=stuck)


def _consumer_loops(functions: Functions, consumers: Sequence[Consumer], name: str) -> dict[str, WorkerLoop]:
    """Return a loop for each consumer, and the watch that wakes them."""
    if not consumers:
        return {}
    events = Events(functions)
    watch = StreamWatch(functions.valkey, [s for consumer in consumers for s in all_streams(consumer.stream)])
    loops: dict[str, WorkerLoop] = {"stream watch": watch}
    for consumer in consumers:
        loop = StreamConsumer(functions, events, consumer, all_streams(consumer.stream), watch, name)
        loops[f"events:{consumer.stream}/{consumer.group}"] = loop
    return loops


def core_timers(functions: Functions) -> list[Timer]:
    """The timers of core: settle outbox entries, remove old Lua libraries, watch the memory."""

    async def settle(_: Lease) -> str:
        return f"{await functions.outbox_recovery.recover()} owners settled"

    async def remove_libraries(_: Lease) -> str:
        return f"{len(await functions.remove_unused_libraries())} libraries removed"

    async def watch_memory(_: Lease) -> str:
        return await valkey_memory.watch(functions.valkey)

    timers = [Timer("core.libraries", 3600, remove_libraries), Timer("core.memory", 15, watch_memory)]
    if functions.valkey.clustered:
        timers.append(Timer("core.settle", SETTLE_SECONDS, settle))
    return timers


async def _keep_running(name: str, loop: WorkerLoop, explain: ExplainError) -> None:
    """Run a loop until it is stopped. It restarts after growing pauses, and a missing dependency is logged once."""
    pause = MIN_PAUSE_SECONDS
    while not loop.stopping:
        started = asyncio.get_running_loop().time()
        try:
            await loop.run()
        except Unavailable as error:
            if pause == MIN_PAUSE_SECONDS:
                log.warning("job_waiting", job=name, error=str(error))
        except Exception as raised:
            explained = await explain(raised)
            trace = None if isinstance(explained, WrongKeyType) else raised
            log.error("job_restarting", job=name, exc_info=trace, error=str(explained))
        if asyncio.get_running_loop().time() - started > MAX_PAUSE_SECONDS:
            pause = MIN_PAUSE_SECONDS
        if not loop.stopping:
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 2, MAX_PAUSE_SECONDS)
