"""Runs what nobody waits for: jobs by the clock, and reactions to events. Any number of workers may run.

`plaza serve` has one inside, `plaza worker` is one alone; they share the work through leases and consumer groups.
Each timer and each consumer is a task of its own, so one that fails or hangs holds up no other, and each goes on by
itself when Valkey or SQL comes back.

When it is cancelled, a worker takes on nothing new, gives what it has begun some time to end, breaks off the rest,
and gives back leases and events, so that another worker goes on at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog

from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.events import EVENTS, Consumer, Event, Events
from plaza.core.functions import Functions
from plaza.core.leases import JOBS, LEASE_SECONDS, Lease, Leases
from plaza.core.stream_consumer import StreamConsumer
from plaza.core.timers import Timer, Timers
from plaza.core.wrong_type import ExplainError, WrongKeyType, unexplained

__all__ = ["LIBRARIES", "Consumer", "Event", "Lease", "Timer", "Worker"]

# What the functions given to a worker must include.
LIBRARIES = (JOBS, EVENTS)

# What has begun may take this long to end; then it is broken off, and has as long again to notice.
STOP_SECONDS = 5.0

# Between attempts while Valkey is away.
SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0

log = structlog.get_logger("plaza.worker")


class Loop(Protocol):
    """Something that goes on for ever. `run` returns or raises when it is worth starting afresh."""

    busy: bool
    stopping: bool

    async def run(self) -> None: ...


class TurnLoop:
    """A turn of work, then a pause of the length it asks for, again and again.

    Where workers take turns at the same thing the pause is a little longer, by chance: waking in the same moment, all
    would come in vain but one.
    """

    def __init__(self, turn: Callable[[], Awaitable[float]], *, most_late_seconds: float = 0.0) -> None:
        self.busy = False
        self.stopping = False
        self._turn = turn
        self._most_late_seconds = most_late_seconds

    async def run(self) -> None:
        while not self.stopping:
            self.busy = True
            try:
                wait = await self._turn()
            finally:
                self.busy = False
            if not self.stopping:
                await asyncio.sleep(wait + random.uniform(0, self._most_late_seconds))


class Worker:
    """All timers and consumers of a process. `await worker.run()` goes on until it is cancelled."""

    def __init__(
        self,
        functions: Functions,
        timers: Sequence[Timer] = (),
        consumers: Sequence[Consumer] = (),
        turns: Mapping[str, Callable[[], Awaitable[float]]] | None = None,
        *,
        clock: Clock | None = None,
        lease_seconds: float = LEASE_SECONDS,
        stop_seconds: float = STOP_SECONDS,
        explain: ExplainError = unexplained,
    ) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._stop_seconds = stop_seconds
        self._explain = explain
        events = Events(functions)
        running = Timers(functions, Leases(functions, lease_seconds), self.name, clock, explain)
        every = [*timers, *own_timers(functions, events, consumers)]
        assert len({timer.name for timer in every}) == len(every), "two timers have the same name"
        self.timers = [timer.name for timer in every]
        self._loops: dict[str, Loop] = {
            timer.name: TurnLoop(partial(running.run_if_due, timer), most_late_seconds=0.02) for timer in every
        }
        self._loops |= {name: TurnLoop(turn) for name, turn in (turns or {}).items()}
        for consumer in consumers:
            self._loops[f"{consumer.stream}/{consumer.group}"] = StreamConsumer(functions, events, consumer, self.name)

    async def run(self) -> None:
        log.info("worker started", worker=self.name, jobs=len(self._loops))
        loops = self._loops.items()
        tasks = {name: asyncio.create_task(_keep_running(name, loop, self._explain)) for name, loop in loops}
        try:
            await asyncio.wait(tasks.values())
        finally:
            await self._stop(tasks)
            log.info("worker stopped", worker=self.name)

    async def _stop(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        for name, loop in self._loops.items():
            loop.stopping = True
            if not loop.busy:
                tasks[name].cancel()
        try:
            await asyncio.wait(tasks.values(), timeout=self._stop_seconds)
        finally:  # also if whoever stops us loses patience
            for task in tasks.values():
                task.cancel()
        await asyncio.wait(tasks.values(), timeout=self._stop_seconds)
        stuck = [name for name, task in tasks.items() if not task.done()]
        if stuck:
            log.error("jobs that would not end were left behind", jobs=stuck)


def own_timers(functions: Functions, events: Events, consumers: Sequence[Consumer]) -> list[Timer]:
    """What the ground floor itself needs done now and then."""

    async def trim(_: Lease) -> str:
        streams = sorted({consumer.stream for consumer in consumers})
        return f"{sum([await events.trim(stream) for stream in streams])} events removed"

    async def settle(_: Lease) -> str:
        return f"{await functions.outbox.recover()} owners settled"

    async def tidy(_: Lease) -> str:
        return f"{len(await functions.remove_unused_libraries())} libraries removed"

    timers = [Timer("core.libraries", 3600, tidy)]
    if consumers:
        timers.append(Timer("core.trim", 60, trim))
    if functions.valkey.clustered:
        timers.append(Timer("core.settle", 5, settle))
    return timers


async def _keep_running(name: str, loop: Loop, explain: ExplainError) -> None:
    """Run a loop for ever: what ends it is waited out, with growing pauses, and told once."""
    pause = SHORTEST_PAUSE_SECONDS
    while not loop.stopping:
        begun = asyncio.get_running_loop().time()
        try:
            await loop.run()
        except Unavailable as error:
            if pause == SHORTEST_PAUSE_SECONDS:
                log.warning("a job waits: what it needs is away", job=name, error=str(error))
        except Exception as raised:
            said = await explain(raised)
            trace = None if isinstance(said, WrongKeyType) else raised
            log.error("a job broke and is started afresh", job=name, exc_info=trace, error=str(said))
        if asyncio.get_running_loop().time() - begun > LONGEST_PAUSE_SECONDS:
            pause = SHORTEST_PAUSE_SECONDS
        if not loop.stopping:
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
