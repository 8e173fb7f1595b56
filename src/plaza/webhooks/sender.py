"""Sends the events that wait for one endpoint: in order per subject, different subjects at the same time.

An event that fails is sent again after a growing wait, and the later events of its subject wait for it. An endpoint
that asks for a pause (`Retry-After`) gets it. If many requests fail in a row, the endpoint is down: it gets one request
at a time, and its own wait grows. While it waits, it costs nothing but the memory of its queue. The first success
brings everything back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.valkey import ReplyError
from plaza.webhooks.deliveries import send_signed
from plaza.webhooks.delivery_queue import DeliveryQueue, QueuedEvent
from plaza.webhooks.endpoint_health import EndpointHealth
from plaza.webhooks.endpoint_reader import Endpoint
from plaza.webhooks.http_client import WebhookClient
from plaza.webhooks.model import SendOutcome, retry_wait_ms
from plaza.webhooks.subject_queues import SubjectQueues

if TYPE_CHECKING:
    from plaza.webhooks.endpoint_connections import EndpointConnections

# Events of one endpoint in memory. Beyond so many that wait for a retry, the queue is not looked through.
WINDOW: Final = 1_000
# Events read at once.
CHUNK: Final = 250
# The pause between calls while Valkey is not available.
PAUSE_SECONDS: Final = 0.5
# The pause between reads of a queue that is damaged. `plaza audit` reports it.
DAMAGED_SECONDS: Final = 15.0

log = structlog.get_logger("plaza.webhooks")

Disable = Callable[[str, str], Awaitable[None]]


class EndpointSender:
    """Sends the queue of one endpoint until it is stopped."""

    def __init__(
        self, endpoint: Endpoint, queue: DeliveryQueue, client: WebhookClient, clock: Clock, disable: Disable
    ) -> None:
        self.endpoint = endpoint
        self._queue = queue
        self._client = client
        self._clock = clock
        self._disable = disable
        self._subjects = SubjectQueues()
        self._changed = asyncio.Event()
        self._attempts: set[asyncio.Task[None]] = set()
        self._connections: EndpointConnections | None = None
        self._has_more = True
        self._must_reload = True
        self.ended = False
        self._stopping = False
        self._is_removed = False
        self._health = EndpointHealth()

    @property
    def in_progress(self) -> int:
        return len(self._attempts)

    def wake(self) -> None:
        """There are new events in the queue."""
        self._has_more = True
        self._changed.set()

    def reload(self, endpoint: Endpoint | None) -> None:
        """The endpoint was changed, a retry was requested, or it was removed (None)."""
        self._is_removed = endpoint is None
        self.endpoint = endpoint or self.endpoint
        self._must_reload = True
        self._changed.set()

    def stop(self) -> None:
        """Start no further request. `run` returns when those in progress have ended."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Send events until stopped or removed. While Valkey is not available, it waits."""
        try:
            while not (self._is_removed or self._stopping) or self._attempts:
                self._changed.clear()
                if self._may_send:
                    await _unless_damaged(self.endpoint.id, lambda: _when_available(self._read))
                    self._start_due()
                await self._wait()
        finally:
            self.ended = True
            for attempt in self._attempts:
                attempt.cancel()
            if self._attempts:
                await asyncio.wait(self._attempts)
            if self._connections is not None:
                await self._connections.close()

    @property
    def _may_send(self) -> bool:
        return self.endpoint.is_enabled and not (self._is_removed or self._stopping)

    async def _read(self) -> None:
        if self._must_reload and not self._attempts:
            # Due times may have changed. Nothing is in progress, so what is in memory can be read again.
            health = EndpointHealth(*await self._queue.failures(self.endpoint.id))
            self._must_reload, self._has_more = False, True
            self._health, self._subjects = health, SubjectQueues()
        while self._has_more and self._subjects.size < WINDOW - CHUNK:
            events = await self._queue.waiting(self.endpoint.id, self._subjects.last_read, CHUNK)
            self._has_more = len(events) == CHUNK
            for event in events:
                self._subjects.add(event)

    def _start_due(self) -> None:
        """Start as many requests as the endpoint may have."""
        if self._must_reload or not self._may_send:
            return
        now = self._clock.now_ms()
        if now < self._health.due_ms:
            return
        if self._health.is_down:
            self._subjects.make_all_due()
        while len(self._attempts) < self._health.max_requests and (event := self._subjects.take(now)) is not None:
            attempt = asyncio.create_task(self._attempt(event))
            self._attempts.add(attempt)
            attempt.add_done_callback(self._attempt_ended)

    def _attempt_ended(self, attempt: asyncio.Task[None]) -> None:
        self._attempts.discard(attempt)
        self._changed.set()

    async def _wait(self) -> None:
        """Wait until something changes or a request is due."""
        is_full = len(self._attempts) >= self._health.max_requests or self._subjects.size == 0
        now, due = self._clock.now_ms(), None
        if self._may_send and not (is_full or self._must_reload):
            must_pause = self._health.is_down or self._health.due_ms > now
            due = self._health.due_ms if must_pause else self._subjects.next_due_ms()
        seconds = None if due is None else max(due - now, 0) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _attempt(self, event: QueuedEvent) -> None:
        if self._connections is None:
            self._connections = self._client.connections()
        now = self._clock.now_ms()
        outcome = await send_signed(self._connections, self.endpoint, event.event, now, event.body)
        metrics.WEBHOOK_DURATION.observe(outcome.duration_ms / 1000)
        event, now = event.after_attempt(now), self._clock.now_ms()
        try:
            await (self._delivered if outcome.is_delivered else self._failed)(event, outcome, now)
        except Exception as error:
            # The result is not stored, for example because a key is damaged. The event is sent again, but not at once.
            log.error("webhook_result_not_stored", webhook=self.endpoint.id, exc_info=error)
            self._subjects.retry(event.due_again(now + retry_wait_ms(event.attempts)))

    async def _delivered(self, event: QueuedEvent, outcome: SendOutcome, now: int) -> None:
        metrics.WEBHOOK_ATTEMPTS.labels("delivered").inc()
        await _when_available(lambda: self._queue.delivered(self.endpoint.id, event, outcome, now))
        self._subjects.done(event)
        if self._health.is_down:
            self._subjects.make_all_due()
        self._health.succeeded()

    async def _failed(self, event: QueuedEvent, outcome: SendOutcome, now: int) -> None:
        metrics.WEBHOOK_ATTEMPTS.labels("failed").inc()
        self._health.failed(now, outcome.retry_after_ms)
        wait_ms = max(retry_wait_ms(event.attempts), outcome.retry_after_ms)
        failed, endpoint_due = event.due_again(now + wait_ms), self._health.due_ms
        await _when_available(lambda: self._queue.failed(self.endpoint.id, failed, outcome, now, endpoint_due))
        reason = self._health.reason_to_give_up(event, outcome, now)
        if reason is not None:
            self.endpoint = replace(self.endpoint, is_enabled=False)  # at once; other processes learn it from Valkey
            await _when_available(lambda: self._disable(self.endpoint.id, reason))
        self._subjects.retry(failed)


async def _when_available(call: Callable[[], Awaitable[None]]) -> None:
    """Call Valkey, again and again while it is not available. A result that is not stored means a second request."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(PAUSE_SECONDS)


async def _unless_damaged(webhook: str, read: Callable[[], Awaitable[None]]) -> None:
    """Read the queue, again after a pause while a key of the endpoint is damaged."""
    while True:
        try:
            return await read()
        except ReplyError as error:
            log.error("webhook_queue_damaged", webhook=webhook, error=str(error))
            await asyncio.sleep(DAMAGED_SECONDS)
