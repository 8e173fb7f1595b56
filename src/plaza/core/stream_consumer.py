"""Runs a consumer: reads events, calls the handler, and claims events of consumers that died.

It fetches in this order: events that failed here and are due for another try, events of dead consumers, new events.
While a batch is handled, it resets their idle time regularly, so that no other consumer claims them. When it stops, it
releases the events it has not handled, so that others can claim them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from math import inf
from time import monotonic
from typing import Any

import structlog

from plaza.core import metrics
from plaza.core.errors import Unavailable
from plaza.core.event_streams import EventStream
from plaza.core.events import MAX_DEAD_EVENTS, Consumer, Event, Events, event_from_entry
from plaza.core.functions import Functions
from plaza.core.valkey.client import BlockingConnection

log = structlog.get_logger("plaza.events")

# How long one read blocks. An idle consumer costs one command in this time.
BLOCK_SECONDS = 5.0

# The longest pause between tries while a service that the handler needs is unavailable.
MAX_PAUSE_SECONDS = 15.0


class RetrySchedule:
    """When the events that failed in this process are tried again."""

    def __init__(self, stale_seconds: float) -> None:
        self.max_wait_seconds = stale_seconds / 2  # after a longer wait another consumer would claim the event
        self._due: list[tuple[float, str]] = []  # (when, event id)

    def add(self, event_id: str, wait_seconds: float) -> None:
        heapq.heappush(self._due, (monotonic() + wait_seconds, event_id))

    def pop_due(self) -> str | None:
        """Remove and return an event that is due; None if there is none."""
        return heapq.heappop(self._due)[1] if self.next_at() <= monotonic() else None

    def next_at(self) -> float:
        """Return when the next event is due, by `monotonic`; infinity if there is none."""
        return self._due[0][0] if self._due else inf


class StreamConsumer:
    """One consumer of one stream in one process, with a unique name."""

    def __init__(
        self, functions: Functions, events: Events, consumer: Consumer, stream: EventStream, name: str
    ) -> None:
        self.consumer = consumer
        self.stream = stream
        self.busy = False  # handling a batch; stopping now would interrupt it
        self.stopping = False
        self._functions = functions
        self._events = events
        self._group_and_name = (consumer.group, name)
        self._retries = RetrySchedule(consumer.stale_seconds)
        self._acks: list[asyncio.Future[Any]] = []
        self._claim_at = 0.0
        self._cursor = "0-0"
        self._pauses = 0  # in a row, because a service was unavailable
        labels = (consumer.stream, consumer.group)
        self._done = metrics.EVENTS_HANDLED.labels(*labels, "done")
        self._failed = metrics.EVENTS_HANDLED.labels(*labels, "failed")
        self._dead = metrics.EVENTS_DEAD.labels(*labels)
        self._claimed = metrics.EVENTS_CLAIMED.labels(*labels)

    def stop(self) -> None:
        """End `run` after the current event."""
        self.stopping = True

    async def run(self) -> None:
        """Handle events until stopped. Raises `Unavailable` when Valkey is; the caller then calls it again."""
        await self._events.ensure_group(self.stream, self.consumer.group)
        await self._release()  # the events of an earlier run that ended because Valkey was unavailable
        self._retries, self._claim_at, self._cursor = RetrySchedule(self.consumer.stale_seconds), 0.0, "0-0"
        try:
            async with self._functions.valkey.blocking() as connection:
                while not self.stopping:
                    await self._handle_batch(await self._next_batch(connection))
        finally:
            with contextlib.suppress(Unavailable):
                await asyncio.shield(self._release())

    async def _next_batch(self, connection: BlockingConnection) -> list[Event]:
        if (event_id := self._retries.pop_due()) is not None:
            return await self._retry(event_id)
        if self._claim_at <= monotonic():
            return await self._claim()
        return await self._read(connection)

    async def _read(self, connection: BlockingConnection) -> list[Event]:
        due = min(self._claim_at, self._retries.next_at())
        block = min(BLOCK_SECONDS, max(due - monotonic(), 0.001))
        group, batch = ("GROUP", *self._group_and_name), ("COUNT", self.consumer.batch_size)
        reply = await connection.call(
            "XREADGROUP", *group, *batch, "BLOCK", max(round(block * 1000), 1), "STREAMS", self.stream.key, ">"
        )
        entries = reply[self.stream.key] if reply else []
        return [event_from_entry(self.consumer.stream, [entry[0], 1, entry[1]]) for entry in entries]

    async def _claim(self) -> list[Event]:
        """Claim some events whose consumer has been silent for too long."""
        stale = _ms(self.consumer.stale_seconds)
        self._cursor, *entries = await self._call("claim", stale, self.consumer.batch_size, self._cursor)
        if self._cursor == "0-0":  # the whole stream was scanned
            self._claim_at = monotonic() + self.consumer.stale_seconds / 4
        self._claimed.inc(len(entries))
        return [event_from_entry(self.consumer.stream, entry) for entry in entries]

    async def _retry(self, event_id: str) -> list[Event]:
        entry = await self._call("retry", event_id)
        return [event_from_entry(self.consumer.stream, entry)] if entry else []

    async def _handle_batch(self, batch: list[Event]) -> None:
        if not batch:
            return
        self.busy = True
        unhandled = {event.entry_id for event in batch}
        touching = asyncio.create_task(self._touch(unhandled))
        try:
            for event in batch:
                if self.stopping:
                    break
                await self._handle(event)
                unhandled.discard(event.entry_id)
        finally:
            self.busy = False
            touching.cancel()
            acks, self._acks = self._acks, []
            outcomes = await asyncio.gather(*acks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # Valkey is unavailable: `run` is started again

    async def _handle(self, event: Event) -> None:
        if event.tries > self.consumer.max_tries:
            await self._dead_letter(event, "Its consumer died or stalled every time.")
            return
        try:
            async with asyncio.timeout(self.consumer.timeout_seconds):
                await self.consumer.handle(event)
        except Unavailable as error:
            await self._wait_for_service(event, error)
        except Exception as error:
            await self._fail(event, error)
        else:
            self._pauses = 0
            self._done.inc()
            # Sent now and awaited later, so that the next event can be handled meanwhile.
            ack = self._functions.valkey.call("XACK", self.stream.key, self.consumer.group, event.entry_id)
            self._acks.append(asyncio.ensure_future(ack))

    async def _wait_for_service(self, event: Event, error: Unavailable) -> None:
        """Pause. The try does not count, since the event is not the cause; the next event would fail too."""
        pause = min(self.consumer.retry_seconds * 2**self._pauses, MAX_PAUSE_SECONDS, self._retries.max_wait_seconds)
        if self._pauses == 0:
            log.warning("event_handler_unavailable", error=str(error), **_log_fields(self.consumer, event))
        self._pauses = min(self._pauses + 1, 20)
        await self._call("uncount_try", event.entry_id)
        self._retries.add(event.entry_id, pause)
        self.busy = False
        await asyncio.sleep(pause)
        self.busy = True

    async def _fail(self, event: Event, error: Exception) -> None:
        self._failed.inc()
        log.error("event_failed", exc_info=error, tries=event.tries, **_log_fields(self.consumer, event))
        if event.tries >= self.consumer.max_tries:
            await self._dead_letter(event, _reason(error, self.consumer.timeout_seconds))
            return
        wait = min(self.consumer.retry_seconds * 2 ** (event.tries - 1), self._retries.max_wait_seconds)
        self._retries.add(event.entry_id, wait)

    async def _dead_letter(self, event: Event, reason: str) -> None:
        keys = [self.stream.key, self.stream.dead_key]
        if await self._functions.run(
            "events_dead_letter", keys, *self._group_and_name, event.entry_id, reason, MAX_DEAD_EVENTS
        ):
            log.error("event_dead", reason=reason, **_log_fields(self.consumer, event))
            self._dead.inc()

    async def _touch(self, unhandled: set[str]) -> None:
        while True:
            await asyncio.sleep(self.consumer.stale_seconds / 3)
            with contextlib.suppress(Unavailable):
                await self._call("touch", *unhandled)

    async def _release(self) -> None:
        await self._call("release", _ms(self.consumer.stale_seconds))

    async def _call(self, command: str, *args: Any) -> Any:
        return await self._functions.run(f"events_{command}", [self.stream.key], *self._group_and_name, *args)


def _log_fields(consumer: Consumer, event: Event) -> dict[str, str]:
    return {"stream": event.stream, "group": consumer.group, "id": event.id}


def _reason(error: Exception, timeout_seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"It took longer than {timeout_seconds:g} s."
    return f"{type(error).__name__}: {error}"[:500]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
