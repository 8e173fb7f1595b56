"""Runs a consumer: reads events, calls the handler, and claims events of consumers that died.

It fetches in this order: events that failed here and are due for another try, events of dead consumers, new events.
While a batch is handled, it resets their idle time regularly, so that no other consumer claims them. Handled events are
acknowledged together, at the end of a batch and during a slow one. When it stops, it releases the events it has not
handled, so that others can claim them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Sequence
from math import inf
from time import monotonic

import structlog

from plaza.core import metrics
from plaza.core.errors import Unavailable
from plaza.core.event_streams import EventStream
from plaza.core.events import Consumer, DataCheck, Event, Events, TypeFilter
from plaza.core.functions import Functions
from plaza.core.group_member import GroupMember
from plaza.core.stream_watch import StreamWatch
from plaza.core.tracing import traced

log = structlog.get_logger("plaza.events")

# The longest wait for new events without looking. The watch tells earlier.
MAX_WAIT_SECONDS = 5.0

# The shortest time between two reads of new events. On a busy stream a batch has what came meanwhile, and costs little
# more than a single event. The first event after a while is handled at once.
READ_SECONDS = 0.1

# The longest pause between tries while a service that the handler needs is unavailable.
MAX_PAUSE_SECONDS = 15.0

# During a slow batch, handled events are acknowledged this often: if the process dies, the others are handled again.
ACK_SECONDS = 0.2


class RetrySchedule:
    """When the events that failed in this process are tried again."""

    def __init__(self, stale_seconds: float) -> None:
        self.max_wait_seconds = stale_seconds / 2  # after a longer wait another consumer would claim the event
        self._due: list[tuple[float, str]] = []  # (when, entry id)

    def add(self, entry_id: str, wait_seconds: float) -> None:
        heapq.heappush(self._due, (monotonic() + wait_seconds, entry_id))

    def pop_due(self) -> str | None:
        """Remove and return an event that is due; None if there is none."""
        return heapq.heappop(self._due)[1] if self.next_at() <= monotonic() else None

    def next_at(self) -> float:
        """Return when the next event is due, by `monotonic`; infinity if there is none."""
        return self._due[0][0] if self._due else inf


class Batch:
    """The events that a consumer has been given: those not handled yet, and those not acknowledged yet."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.unhandled = {event.entry_id for event in events}
        self.handled: list[str] = []

    def done(self, events: Sequence[Event]) -> None:
        ids = [event.entry_id for event in events]
        self.unhandled.difference_update(ids)
        self.handled += ids

    def take_handled(self) -> list[str]:
        handled, self.handled = self.handled, []
        return handled


class StreamConsumer:
    """One consumer of one stream in one process, with a unique name."""

    def __init__(
        self,
        functions: Functions,
        events: Events,
        consumer: Consumer,
        stream: EventStream,
        watch: StreamWatch,
        name: str,
    ) -> None:
        self.busy = False  # handling a batch; stopping now would interrupt it
        self.stopping = False
        self._consumer = consumer
        self._stream = stream
        self._events = events
        self._watch = watch
        self._member = GroupMember(functions, stream, consumer.group, name, consumer.stale_seconds)
        self._is_wanted = TypeFilter(consumer.types)
        self._is_complete = DataCheck(consumer.declared)
        self._retries = RetrySchedule(consumer.stale_seconds)
        self._claim_at = 0.0
        self._read_at = 0.0
        self._cursor = "0-0"
        self._span_name = f"events {consumer.stream} {consumer.group}"
        labels = (consumer.stream, consumer.group)
        self._done = metrics.EVENTS_HANDLED.labels(*labels, "done")
        self._failed = metrics.EVENTS_HANDLED.labels(*labels, "failed")
        self._skipped = metrics.EVENTS_HANDLED.labels(*labels, "skipped")
        self._dead = metrics.EVENTS_DEAD.labels(*labels)
        self._claimed = metrics.EVENTS_CLAIMED.labels(*labels)

    def stop(self) -> None:
        """End `run` after the current event or batch."""
        self.stopping = True

    async def run(self) -> None:
        """Handle events until stopped. Raises `Unavailable` when Valkey is; the caller then calls it again."""
        await self._events.ensure_group(self._stream, self._consumer.group, from_start=self._consumer.from_start)
        await self._member.release()  # the events of an earlier run that ended because Valkey was unavailable
        self._retries, self._claim_at, self._cursor = RetrySchedule(self._consumer.stale_seconds), 0.0, "0-0"
        try:
            while not self.stopping:
                await self._handle_batch(await self._next_batch())
        finally:
            with contextlib.suppress(Unavailable):
                await asyncio.shield(self._member.release())

    async def _next_batch(self) -> list[Event]:
        if (entry_id := self._retries.pop_due()) is not None:
            return await self._member.retry(entry_id)
        if self._claim_at <= monotonic():
            return await self._claim()
        if (wait := self._read_at - monotonic()) > 0:
            await asyncio.sleep(wait)
        seen = self._watch.version(self._stream.key)
        events = await self._member.read_new(self._consumer.batch_size)
        if 0 < len(events) < self._consumer.batch_size:
            self._read_at = monotonic() + READ_SECONDS
        if not events:
            due = min(self._claim_at, self._retries.next_at())
            await self._watch.wait(self._stream.key, seen, min(MAX_WAIT_SECONDS, max(due - monotonic(), 0.001)))
        return events

    async def _claim(self) -> list[Event]:
        """Claim some events whose consumer has been silent for too long."""
        self._cursor, events = await self._member.claim(self._consumer.batch_size, self._cursor)
        if self._cursor == "0-0":  # the whole stream was scanned
            self._claim_at = monotonic() + self._consumer.stale_seconds / 4
        self._claimed.inc(len(events))
        return events

    async def _handle_batch(self, events: list[Event]) -> None:
        if not events:
            return
        batch = Batch(events)
        keeping = asyncio.create_task(self._keep(batch))
        self.busy = True
        try:
            batch.done([event for event in events if not self._is_wanted(event.type)])
            wanted = [event for event in events if self._is_wanted(event.type)]
            incomplete = {event.entry_id: event for event in wanted if not self._is_complete(event)}
            self._skip(list(incomplete.values()), batch)
            await self._handle_wanted([event for event in wanted if event.entry_id not in incomplete], batch)
        finally:
            self.busy = False
            keeping.cancel()
            await self._acknowledge(batch)

    def _skip(self, events: Sequence[Event], batch: Batch) -> None:
        for event in events:
            log.warning("event_incomplete", type=event.type, **self._log_fields(event))
        self._skipped.inc(len(events))
        batch.done(events)

    async def _handle_wanted(self, events: list[Event], batch: Batch) -> None:
        """Handle a batch as one if its handler takes batches and no event failed before, else event by event."""
        as_one = self._consumer.handle_batch is not None and all(event.tries == 1 for event in events)
        if as_one and len(events) > 1 and await self._failure(events, batch) is None:
            return
        for event in events:
            if self.stopping:
                return
            if event.tries > self._consumer.max_tries:
                await self._dead_letter(event, "Its consumer died or stalled every time.")
            elif error := await self._failure([event], batch):
                await self._fail(event, error)
            batch.unhandled.discard(event.entry_id)

    async def _failure(self, events: Sequence[Event], batch: Batch) -> Exception | None:
        """Call the handler. Returns None when the events are handled, else the error.

        While a service that the handler needs is unavailable, try again: the events are not the cause, and the next
        ones would fail too.
        """
        pause = self._consumer.retry_seconds
        while not self.stopping:
            try:
                with traced(self._span_name, "consumer", **{"messaging.batch.message_count": len(events)}):
                    async with asyncio.timeout(self._consumer.timeout_seconds):
                        await self._consumer.handle_all(events)
            except Unavailable as error:
                if pause == self._consumer.retry_seconds:
                    log.warning("event_handler_unavailable", error=str(error), **self._log_fields(events[0]))
                await self._pause(pause)
                pause = min(pause * 2, MAX_PAUSE_SECONDS)
            except Exception as error:
                return error
            else:
                self._done.inc(len(events))
                batch.done(events)
                return None
        return None

    async def _pause(self, seconds: float) -> None:
        self.busy = False  # stopping need not wait
        await asyncio.sleep(seconds)
        self.busy = True

    async def _fail(self, event: Event, error: Exception) -> None:
        self._failed.inc()
        log.error("event_failed", exc_info=error, tries=event.tries, **self._log_fields(event))
        if event.tries >= self._consumer.max_tries:
            await self._dead_letter(event, _reason(error, self._consumer.timeout_seconds))
            return
        wait = min(self._consumer.retry_seconds * 2 ** (event.tries - 1), self._retries.max_wait_seconds)
        self._retries.add(event.entry_id, wait)

    async def _dead_letter(self, event: Event, reason: str) -> None:
        if await self._member.dead_letter(event, reason):
            log.error("event_dead", reason=reason, **self._log_fields(event))
            self._dead.inc()

    async def _acknowledge(self, batch: Batch) -> None:
        if handled := batch.take_handled():
            await self._member.acknowledge(handled)

    async def _keep(self, batch: Batch) -> None:
        """During a slow batch, acknowledge what is handled, and keep the rest from being claimed by others."""
        touch_at = monotonic() + self._consumer.stale_seconds / 3
        while True:
            await asyncio.sleep(min(ACK_SECONDS, self._consumer.stale_seconds / 3))
            with contextlib.suppress(Unavailable):
                await self._acknowledge(batch)
                if monotonic() >= touch_at:
                    await self._member.touch(batch.unhandled)
                    touch_at = monotonic() + self._consumer.stale_seconds / 3

    def _log_fields(self, event: Event) -> dict[str, str]:
        return {"stream": self._stream.key, "group": self._consumer.group, "id": event.id}


def _reason(error: Exception, timeout_seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"It took longer than {timeout_seconds:g} s."
    return f"{type(error).__name__}: {error}"[:500]
