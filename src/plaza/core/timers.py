"""Jobs that run by the clock, each in one worker at a time.

When a job is due stands in Valkey (`job:<name>`), not in a worker, and it is due by the server's clock: so any number
of workers agree, one that starts later does not start over, and after a pause of days a job runs once, not once for
every time it missed. A failure is tried again sooner than the next turn, with growing waits. A job may run twice
(its worker may die before it can say that it is done), so the second run must be harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

import structlog

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.leases import Lease, LeaseLost, Leases, release_lease
from plaza.core.wrong_type import ExplainError, WrongKeyType, unexplained

log = structlog.get_logger("plaza.jobs")

# A job that waits looks again this often, so that an operator's `next_at 0` is seen.
LOOK_SECONDS = 15.0

# What a job says is for an operator to read in a table.
LONGEST_WORDS = 500


@dataclass(frozen=True, slots=True)
class Timer:
    """`run` every so many seconds, given the fence that it runs under. What it says is shown to operators."""

    name: str
    every_seconds: float
    run: Callable[[Lease], Awaitable[str | None]]
    at_seconds: float | None = None  # into its period: daily and 300 is 00:05 UTC; None: counted from its first run
    retry_seconds: float = 5.0  # after the first failure; doubled with every further one
    most_seconds: float = 3600.0  # a run that takes longer is broken off, and failed

    @property
    def keys(self) -> list[str]:
        return [core.LEASE(self.name), core.FENCE(self.name), core.JOB(self.name)]


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a run ended."""

    state: str
    words: str
    seconds: float


class Timers:
    """Starts timers' jobs when they are due, under a lease."""

    def __init__(
        self,
        functions: Functions,
        leases: Leases,
        worker: str,
        clock: Clock | None = None,
        explain: ExplainError = unexplained,
    ) -> None:
        self._functions = functions
        self._leases = leases
        self._worker = worker
        self._clock = clock  # None: the server's
        self._explain = explain

    async def run_if_due(self, timer: Timer) -> float:
        """Run the job if it is due and nobody else runs it. Returns the seconds until it is worth asking again."""
        token, *wait = await self._functions.run(
            "jobs_start",
            timer.keys,
            self._now(),
            _ms(self._leases.seconds),
            _ms(timer.every_seconds),
            _ms(timer.retry_seconds),
            self._worker,
        )
        if not token:
            return min(int(wait[0]) / 1000, LOOK_SECONDS)
        return await self._run(timer, Lease(self._functions, timer.name, int(token)))

    async def _run(self, timer: Timer, fence: Lease) -> float:
        try:
            ended = await self._end_of(timer, fence)
        except asyncio.CancelledError:
            # The worker stops, and the job with it: the next worker starts it again at once.
            await release_lease(self._functions, "jobs_stop", timer.keys, fence)
            raise
        except LeaseLost:
            return self._fenced(timer, fence)
        _count(timer, ended)
        return await self._finish(timer, fence, ended)

    async def _end_of(self, timer: Timer, fence: Lease) -> JobResult:
        begun = monotonic()
        try:
            async with self._leases.renew(fence), asyncio.timeout(timer.most_seconds):
                words = await timer.run(fence)
        except LeaseLost:
            raise
        except TimeoutError:
            log.error("a job took too long", job=timer.name, seconds=timer.most_seconds)
            return JobResult("failed", f"It took longer than {timer.most_seconds:g} s.", monotonic() - begun)
        except Exception as raised:
            error = await self._explain(raised)
            # Where it comes from is clear when something is merely away, or damaged.
            clear = isinstance(error, Unavailable | WrongKeyType)
            log.error("a job failed", job=timer.name, exc_info=None if clear else raised, error=str(error))
            return JobResult("failed", f"{type(error).__name__}: {error}", monotonic() - begun)
        return JobResult("done", words or "", monotonic() - begun)

    async def _finish(self, timer: Timer, fence: Lease, ended: JobResult) -> float:
        try:
            wait = await self._functions.run(
                "jobs_finish",
                timer.keys,
                self._now(),
                fence.token,
                _ms(timer.every_seconds),
                "" if timer.at_seconds is None else _ms(timer.at_seconds),
                _ms(timer.retry_seconds),
                _ms(ended.seconds),
                ended.state,
                ended.words[:LONGEST_WORDS],
            )
        except LeaseLost:
            return self._fenced(timer, fence)
        return min(int(wait) / 1000, LOOK_SECONDS)

    def _fenced(self, timer: Timer, fence: Lease) -> float:
        log.warning("a job lost its lease and was broken off", job=timer.name, run=fence.token)
        metrics.JOB_RUNS.labels(timer.name, "fenced").inc()
        return 0.0

    def _now(self) -> int | str:
        return "" if self._clock is None else self._clock.now_ms()


def _count(timer: Timer, ended: JobResult) -> None:
    metrics.JOB_RUNS.labels(timer.name, ended.state).inc()
    metrics.JOB_DURATION.labels(timer.name).observe(ended.seconds)
    if ended.state == "done":
        metrics.JOB_LAST_SUCCESS.labels(timer.name).set_to_current_time()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
