"""Runs a consumer: calls the handler for the events that `event_reader.py` fetches.

While a batch is handled, it resets their idle time regularly, so that no other consumer claims them. Handled events are
acknowledged together, at the end of a batch and during a slow one. When it stops, it releases the events it has not
handled, so that others can claim them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from time import monotonic

import structlog

from plaza.core import metrics
from plaza.core.errors import Unavailable
from plaza.core.event_reader import EventReader
from plaza.core.event_streams import EventStream
from plaza.core.events import Consumer, DataCheck, Event, Events, TypeFilter
from plaza.core.functions import Functions
from plaza.core.group_member import GroupMember
from plaza.core.stream_watch import StreamWatch
from plaza.core.tracing import traced

log = structlog.get_logger("plaza.events")

# The longest pause between tries while a service that the handler needs is unavailable.
MAX_PAUSE_SECONDS = 15.0

# During a slow batch, handled events are acknowledged this often: if the process dies, the others are handled again.
ACK_SECONDS = 0.2


class Batch:
    """The events that a consumer has been given: those not handled yet, and those not acknowledged yet."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._unhandled = {id(event): event for event in events}
        self._handled: list[Event] = []

    def done(self, events: Sequence[Event]) -> None:
        """Note that events are handled."""
        self._handled += events
        for event in events:
            self.give_up(event)

    def give_up(self, event: Event) -> None:
        """Note that an event is no longer in progress."""
        self._unhandled.pop(id(event), None)

    def has(self, event: Event) -> bool:
        """Whether an event is not handled yet."""
        return id(event) in self._unhandled

    @property
    def unhandled(self) -> list[Event]:
        return list(self._unhandled.values())

    def take_handled(self) -> list[Event]:
        handled, self._handled = self._handled, []
        return handled


class StreamConsumer:
    """One consumer of the streams of a domain in one process, with a unique name."""

    def __init__(
        self,
        functions: Functions,
        events: Events,
        consumer: Consumer,
        streams: Sequence[EventStream],
        watch: StreamWatch,
        name: str,
    ) -> None:
        self.busy = False  # handling a batch; stopping now would interrupt it
        self.stopping = False
        self._consumer = consumer
        self._streams = streams
        self._events = events
        self._member = GroupMember(functions, streams, consumer.group, name, consumer.stale_seconds)
        self._reader = EventReader(consumer, streams, self._member, watch.follow(streams))
        self._is_wanted = TypeFilter(consumer.types)
        self._is_complete = DataCheck(consumer.declared)
        self._span_name = f"events {consumer.stream} {consumer.group}"
        labels = (consumer.stream, consumer.group)
        self._done = metrics.EVENTS_HANDLED.labels(*labels, "done")
        self._failed = metrics.EVENTS_HANDLED.labels(*labels, "failed")
        self._skipped = metrics.EVENTS_HANDLED.labels(*labels, "skipped")
        self._dead = metrics.EVENTS_DEAD.labels(*labels)

    def stop(self) -> None:
        """End `run` after the current event or batch."""
        self.stopping = True

    async def run(self) -> None:
        """Handle events until stopped. Raises `Unavailable` when Valkey is; the caller then calls it again."""
        group, from_start = self._consumer.group, self._consumer.from_start
        await asyncio.gather(*(self._events.ensure_group(each, group, from_start=from_start) for each in self._streams))
        await self._member.release()  # the events of an earlier run that ended because Valkey was unavailable
        self._reader.restart()
        try:
            while not self.stopping:
                await self._handle_batch(await self._reader.next_batch())
        finally:
            with contextlib.suppress(Unavailable):
                await asyncio.shield(self._member.release())

    async def _handle_batch(self, events: list[Event]) -> None:
        if not events:
            return
        batch = Batch(events)
        keeping = asyncio.create_task(self._keep(batch))
        self.busy = True
        try:
            batch.done([event for event in events if not self._is_wanted(event.type)])
            wanted = [event for event in events if self._is_wanted(event.type)]
            self._skip([event for event in wanted if not self._is_complete(event)], batch)
            await self._handle_wanted([event for event in wanted if batch.has(event)], batch)
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
            batch.give_up(event)

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
        self._reader.retry_later(event, self._consumer.retry_seconds * 2 ** (event.tries - 1))

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
        stream = EventStream(event.stream, event.shard)
        return {"stream": stream.key, "group": self._consumer.group, "id": event.id}


def _reason(error: Exception, timeout_seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"It took longer than {timeout_seconds:g} s."
    return f"{type(error).__name__}: {error}"[:500]
