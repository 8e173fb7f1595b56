"""Runs jobs at intervals or at a time of day, each in one worker at a time.

The next run's time is in Valkey (`job:<name>`), by the server's clock, not in a worker. So any number of workers agree,
a worker that starts later does not start over, and after a pause of days a job runs once, not once for every missed
time. A failed run is retried before the next regular time, with growing waits. A job can run twice, because its
worker can die before it records the end. So jobs must be idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

import structlog
from msgspec import Struct

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.leases import Lease, LeaseLost, Leases, release_lease
from plaza.core.tracing import traced
from plaza.core.wrong_type import ExplainError, WrongKeyType, unexplained

log = structlog.get_logger("plaza.jobs")

# How often a worker checks a job that is not due, so that it notices when an operator sets `next_at` to 0.
POLL_SECONDS = 15.0

# Operators read a job's result in a table.
MAX_RESULT_CHARS = 500


class Timer(Struct, frozen=True):
    """Calls `run` every `every_seconds` with the lease that it runs under. Operators see the text that it returns."""

    name: str
    every_seconds: float
    run: Callable[[Lease], Awaitable[str | None]]
    at_seconds: float | None = None  # offset into the period: with daily, 300 is 00:05 UTC; None: from its first run
    retry_seconds: float = 5.0  # after the first failure, doubled after each further one
    timeout_seconds: float = 3600.0  # a run that takes longer is cancelled and counts as failed

    @property
    def keys(self) -> list[str]:
        return [core.LEASE(self.name), core.FENCE(self.name), core.JOB(self.name)]


class JobResult(Struct, frozen=True):
    """How a run ended."""

    state: str
    text: str
    seconds: float


class Timers:
    """Runs the jobs that are due, under a lease."""

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
        self._clock = clock  # None: the server's clock
        self._explain = explain

    async def run_if_due(self, timer: Timer) -> float:
        """Run the job if it is due and no other worker runs it. Returns the seconds until the next check."""
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
            return min(int(wait[0]) / 1000, POLL_SECONDS)
        return await self._run(timer, Lease(self._functions, timer.name, int(token)))

    async def _run(self, timer: Timer, lease: Lease) -> float:
        try:
            result = await self._run_job(timer, lease)
        except asyncio.CancelledError:
            # The worker stops. Another one starts the job again at once.
            await release_lease(self._functions, "jobs_stop", timer.keys, lease)
            raise
        except LeaseLost:
            return self._lost(timer, lease)
        _count(timer, result)
        return await self._finish(timer, lease, result)

    async def _run_job(self, timer: Timer, lease: Lease) -> JobResult:
        started = monotonic()
        try:
            with traced(f"job {timer.name}", "internal"):
                async with self._leases.renew(lease), asyncio.timeout(timer.timeout_seconds):
                    text = await timer.run(lease)
        except LeaseLost:
            raise
        except TimeoutError:
            log.error("job_timed_out", job=timer.name, seconds=timer.timeout_seconds)
            return JobResult("failed", f"It took longer than {timer.timeout_seconds:g} s.", monotonic() - started)
        except Exception as raised:
            error = await self._explain(raised)
            # These errors explain themselves; others need a stack trace.
            explained = isinstance(error, Unavailable | WrongKeyType)
            log.error("job_failed", job=timer.name, exc_info=None if explained else raised, error=str(error))
            return JobResult("failed", f"{type(error).__name__}: {error}", monotonic() - started)
        return JobResult("done", text or "", monotonic() - started)

    async def _finish(self, timer: Timer, lease: Lease, result: JobResult) -> float:
        try:
            wait = await self._functions.run(
                "jobs_finish",
                timer.keys,
                self._now(),
                lease.token,
                _ms(timer.every_seconds),
                "" if timer.at_seconds is None else _ms(timer.at_seconds),
                _ms(timer.retry_seconds),
                _ms(result.seconds),
                result.state,
                result.text[:MAX_RESULT_CHARS],
            )
        except LeaseLost:
            return self._lost(timer, lease)
        return min(int(wait) / 1000, POLL_SECONDS)

    def _lost(self, timer: Timer, lease: Lease) -> float:
        log.warning("job_lost_lease", job=timer.name, run=lease.token)
        metrics.JOB_RUNS.labels(timer.name, "fenced").inc()
        return 0.0

    def _now(self) -> int | str:
        return "" if self._clock is None else self._clock.now_ms()


def _count(timer: Timer, result: JobResult) -> None:
    metrics.JOB_RUNS.labels(timer.name, result.state).inc()
    metrics.JOB_DURATION.labels(timer.name).observe(result.seconds)
    if result.state == "done":
        metrics.JOB_LAST_SUCCESS.labels(timer.name).set_to_current_time()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
