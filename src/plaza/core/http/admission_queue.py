"""The queue in which requests wait for their start, and the rules by which they start or are refused.

A request starts at once while few others run, or while the event loop keeps up. Otherwise it waits here, first in,
first out. It is refused when it has waited longer than its class allows, or on arrival if it would have to wait longer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

import structlog
from msgspec import Struct

from plaza.core import metrics

# So many requests may always run: enough to use a core while some of them wait for Valkey, and few enough that each
# ends soon where one takes 20 ms.
MIN_RUNNING = 8
# How often the event loop's delay is measured, and how many requests beyond `MIN_RUNNING` may start in between. So
# requests that wait for a slow database, and do not delay the loop, never keep others from starting.
TICK_SECONDS = 0.02
STARTS_PER_TICK = 16
# A request of a few steps, each delayed by so much, still ends within a quarter of a second.
LATE_SECONDS = 0.03
# Completions are counted over so long to know how many requests can be served in time.
WINDOW_SECONDS = 0.25
WINDOWS = 8
# Until that is known, so many may wait. A parsed request takes about 5 KB.
MAX_WAITING = 1_000
# A refusal takes a twelfth of the CPU of a short request. Clients that repeat refused requests at once would leave none
# for the others. So the response is held back for so long, and longer if writing responses would take more than this
# share of the time; reading takes about as much. A connection has one request at a time.
REFUSAL_SECONDS = 1.0
REFUSAL_SHARE = 0.03
LOG_SECONDS = 10.0

log = structlog.get_logger("plaza.http")


class Waiter(Struct, eq=False):
    """A request in the queue. Its result is whether it may start."""

    admitted: asyncio.Future[bool]
    deadline: float


class ShedReport:
    """Counts refused requests by reason, for the metrics and the log. Writing a metric per request would cost more."""

    def __init__(self) -> None:
        self.waited = self.queue_full = 0
        self._since_log = 0
        self._log_at = 0.0

    def write(self, now: float, running: int, queued: int) -> None:
        metrics.HTTP_QUEUED.set(queued)
        if self.waited:
            metrics.HTTP_SHED.labels("waited").inc(self.waited)
        if self.queue_full:
            metrics.HTTP_SHED.labels("queue_full").inc(self.queue_full)
        self._since_log += self.waited + self.queue_full
        self.waited = self.queue_full = 0
        if self._since_log and now >= self._log_at:
            log.warning("overloaded", shed=self._since_log, running=running, queued=queued)
            self._since_log, self._log_at = 0, now + LOG_SECONDS


class CompletionRate:
    """The requests per second that a saturated process completes; None while requests do not wait, or none completed.

    It is the best of the last windows: in one window alone a slow query or a pause of the machine can hold up all.
    """

    def __init__(self) -> None:
        self.completed = 0  # in this window
        self.per_second: float | None = None
        self._windows: deque[float] = deque(maxlen=WINDOWS)
        self._is_saturated = True  # requests waited at every tick of this window
        self._start = monotonic()

    def measure(self, now: float, *, is_saturated: bool) -> None:
        """Call it at every tick."""
        self._is_saturated = self._is_saturated and is_saturated
        seconds = now - self._start
        if seconds >= WINDOW_SECONDS:
            if self._is_saturated:
                self._windows.append(self.completed / seconds)
            else:
                self._windows.clear()
            self.per_second = max(self._windows, default=0.0) or None
            self._start, self.completed, self._is_saturated = now, 0, True


class HeldRefusals:
    """Responses to refused requests that are held back."""

    def __init__(self) -> None:
        self._responses: deque[tuple[float, Callable[[], None]]] = deque()  # when to respond, and how
        self._last = monotonic()

    def __len__(self) -> int:
        return len(self._responses)

    def add(self, respond: Callable[[], None]) -> None:
        self._responses.append((monotonic() + REFUSAL_SECONDS, respond))

    def send_due(self, now: float) -> None:
        """Send those that are due: at least one, and more while that takes a small share of the time since the last."""
        end = now + min(now - self._last, WINDOW_SECONDS) * REFUSAL_SHARE
        self._last = now
        while self._responses and self._responses[0][0] <= now:
            self._responses.popleft()[1]()
            if monotonic() >= end:
                break


class AdmissionQueue:
    """Decides when requests start. Costs about a microsecond per request while the process is not overloaded."""

    def __init__(self, *, max_waiting: int = MAX_WAITING) -> None:
        self.running = 0
        self.arriving = 0  # those that were let in on arrival, and whose task has not begun
        self._max_waiting = max_waiting
        self._waiting: deque[Waiter] = deque()
        self._refused = HeldRefusals()
        self._is_late = False
        self._started = 0  # since the last tick, beyond MIN_RUNNING
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the next tick should be
        self._rate = CompletionRate()
        self._shed = ShedReport()

    def __len__(self) -> int:
        return len(self._waiting)

    def arrive(self, wait_seconds: float) -> bool:
        """Let in a request that arrives now, unless it would wait longer than this; if so, it is counted as shed.

        Many can arrive in one turn of the event loop, before the first of them has begun. One that begins lowers
        `arriving`, and calls `enter`.
        """
        waiting = len(self._waiting) + self.arriving
        if waiting and self._is_full(waiting - max(0, MIN_RUNNING - self.running), wait_seconds):
            return False
        self.arriving += 1
        return True

    def _is_full(self, waiting: int, wait_seconds: float) -> bool:
        """Whether a request behind so many would wait longer than this; if so, it is counted as shed."""
        limit = self._max_waiting
        rate = self._rate.per_second
        if rate is not None:
            limit = min(limit, max(MIN_RUNNING, int(rate * wait_seconds)))
        if waiting < limit:
            return False
        self._shed.queue_full += 1
        return True

    def refuse_later(self, respond: Callable[[], None]) -> None:
        """Call `respond` after `REFUSAL_SECONDS`, or later if many are refused."""
        if self._timer is None:
            self._begin()
        self._refused.add(respond)

    async def enter(self, arrived: float, wait_seconds: float) -> bool:
        """Wait until a request may start. Returns False if it must not; else `leave` must follow.

        `arrived` is by `monotonic`'s clock: it may have waited for this call, behind others that the event loop ran.
        """
        if self._timer is None:
            self._begin()
        if not self._waiting and self._may_start():
            self._start()  # also after a long pause of the whole process, which is no overload
            return True
        if arrived + wait_seconds < monotonic():
            self._shed.waited += 1
            return False
        if self._waiting and self._is_full(len(self._waiting), wait_seconds):
            return False
        waiter = Waiter(asyncio.get_running_loop().create_future(), arrived + wait_seconds)
        self._waiting.append(waiter)
        try:
            return await waiter.admitted
        except asyncio.CancelledError:
            if waiter.admitted.done() and not waiter.admitted.cancelled() and waiter.admitted.result():
                self.leave()
            raise

    def leave(self) -> None:
        """A request is complete: the next one may start."""
        self.running -= 1
        self._rate.completed += 1
        if self._waiting:
            self._start_waiting()

    def _may_start(self) -> bool:
        if self.running < MIN_RUNNING:
            return True
        if self._is_late or self._started >= STARTS_PER_TICK:
            return False
        return monotonic() - self._due <= LATE_SECONDS  # later than that, the tick itself is late

    def _start(self) -> None:
        self.running += 1
        if self.running > MIN_RUNNING:
            self._started += 1

    def _start_waiting(self) -> None:
        now = monotonic()
        while self._waiting and self._may_start():
            waiter = self._waiting.popleft()
            if self._resolve(waiter, is_admitted=waiter.deadline > now):
                self._start()

    def _resolve(self, waiter: Waiter, *, is_admitted: bool) -> bool:
        """Tell a request whether it may start. Returns whether it does: it may have been cancelled."""
        if waiter.admitted.done():
            return False
        waiter.admitted.set_result(is_admitted)
        if not is_admitted:
            self._shed.waited += 1
        return is_admitted

    def _begin(self) -> None:
        """Measure the event loop while there are requests."""
        self._is_late, self._started = False, 0
        self._rate = CompletionRate()
        self._schedule()

    def _schedule(self) -> None:
        self._due = monotonic() + TICK_SECONDS
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        now = monotonic()
        self._is_late, self._started = now - self._due > LATE_SECONDS, 0
        self._rate.measure(now, is_saturated=bool(self._waiting))
        self._refuse_expired(now)
        self._start_waiting()
        self._shed.write(now, self.running, len(self._waiting))
        if self.running or self._waiting or self._refused:
            self._schedule()
        else:
            self._timer = None
        self._refused.send_due(now)

    def _refuse_expired(self, now: float) -> None:
        expired = [waiter for waiter in self._waiting if waiter.deadline <= now]
        if expired:
            self._waiting = deque(waiter for waiter in self._waiting if waiter.deadline > now)
            for waiter in expired:
                self._resolve(waiter, is_admitted=False)
