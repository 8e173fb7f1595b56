"""A consumer at work: it reads events, has them handled, and sees to those that others left behind.

It looks in this order: events that failed here and are due for another try, events of consumers that died, new ones.
While a batch is handled, a note every now and then tells the others that it is still ours. On the way out, what was
not handled is given back, so that nobody has to wait until it looks stale.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from time import monotonic
from typing import Any

import structlog

from plaza.core import metrics
from plaza.core.errors import Unavailable
from plaza.core.events import MOST_DEAD, Consumer, Event, Events, event_from_entry
from plaza.core.functions import Functions
from plaza.core.valkey.client import BlockingConnection

log = structlog.get_logger("plaza.events")

# How long one read waits for news; it is only this often that an idle consumer costs anything.
BLOCK_SECONDS = 5.0

# While something that handlers need is away, they are tried this rarely.
LONGEST_PAUSE_SECONDS = 15.0


class StreamConsumer:
    """One consumer in one process, under a name of its own."""

    def __init__(self, functions: Functions, events: Events, consumer: Consumer, name: str) -> None:
        self.consumer = consumer
        self.busy = False  # in the middle of a batch: not a good moment to be stopped
        self.stopping = False
        self._functions = functions
        self._events = events
        self._who = (consumer.group, name)
        self._retries: list[tuple[float, str]] = []  # when, event id
        self._acks: list[asyncio.Future[Any]] = []
        self._claim_at = 0.0
        self._cursor = "0-0"
        self._away = 0  # pauses in a row because something was away
        labels = (consumer.stream, consumer.group)
        self._done = metrics.EVENTS_HANDLED.labels(*labels, "done")
        self._failed = metrics.EVENTS_HANDLED.labels(*labels, "failed")
        self._dead = metrics.EVENTS_DEAD.labels(*labels)
        self._claimed = metrics.EVENTS_CLAIMED.labels(*labels)

    async def run(self) -> None:
        """Work until stopped or until Valkey is away; then whoever calls it calls it again."""
        await self._events.ensure_group(self.consumer.stream, self.consumer.group)
        await self._give_back()  # what an earlier run of ours had in hand when Valkey went away
        self._retries, self._claim_at, self._cursor = [], 0.0, "0-0"
        try:
            async with self._functions.valkey.blocking() as own:
                while not self.stopping:
                    await self._handle_batch(await self._next_batch(own))
        finally:
            with contextlib.suppress(Unavailable):
                await asyncio.shield(self._give_back())

    async def _next_batch(self, own: BlockingConnection) -> list[Event]:
        if self._retries and self._retries[0][0] <= monotonic():
            return await self._retake(heapq.heappop(self._retries)[1])
        if self._claim_at <= monotonic():
            return await self._claim()
        return await self._read(own)

    async def _read(self, own: BlockingConnection) -> list[Event]:
        due = min([self._claim_at, *(when for when, _ in self._retries[:1])])
        block = min(BLOCK_SECONDS, max(due - monotonic(), 0.001))
        group, batch = ("GROUP", *self._who), ("COUNT", self.consumer.batch)
        reply = await own.call(
            "XREADGROUP", *group, *batch, "BLOCK", max(round(block * 1000), 1), "STREAMS", self.consumer.key, ">"
        )
        entries = reply[self.consumer.key] if reply else []
        return [event_from_entry(self.consumer.stream, [entry[0], 1, entry[1]]) for entry in entries]

    async def _claim(self) -> list[Event]:
        """Events whose consumer has been silent for too long, some at a time."""
        stale = _ms(self.consumer.stale_seconds)
        self._cursor, *entries = await self._call("claim", stale, self.consumer.batch, self._cursor)
        if self._cursor == "0-0":  # once round
            self._claim_at = monotonic() + self.consumer.stale_seconds / 4
        self._claimed.inc(len(entries))
        return [event_from_entry(self.consumer.stream, entry) for entry in entries]

    async def _retake(self, event_id: str) -> list[Event]:
        entry = await self._call("retake", event_id)
        return [event_from_entry(self.consumer.stream, entry)] if entry else []

    async def _handle_batch(self, batch: list[Event]) -> None:
        if not batch:
            return
        self.busy = True
        left = {event.id for event in batch}
        keeping = asyncio.create_task(self._keep(left))
        try:
            for event in batch:
                if self.stopping:
                    break
                await self._handle(event)
                left.discard(event.id)
        finally:
            self.busy = False
            keeping.cancel()
            acks, self._acks = self._acks, []
            outcomes = await asyncio.gather(*acks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # Valkey was away: to be started afresh

    async def _handle(self, event: Event) -> None:
        if event.tries > self.consumer.tries:
            await self._bury(event, "Its consumer died or stalled every time.")
            return
        try:
            async with asyncio.timeout(self.consumer.most_seconds):
                await self.consumer.handle(event)
        except Unavailable as error:
            await self._wait_for_what_is_away(event, error)
        except Exception as error:
            await self._fail(event, error)
        else:
            self._away = 0
            self._done.inc()
            # Sent at once, but not waited for: the next event can be handled meanwhile.
            ack = self._functions.valkey.call("XACK", self.consumer.key, self.consumer.group, event.id)
            self._acks.append(asyncio.ensure_future(ack))

    async def _wait_for_what_is_away(self, event: Event, error: Unavailable) -> None:
        """Not the event's fault, so it does not count; nor would the next event fare better."""
        pause = min(self.consumer.retry_seconds * 2**self._away, LONGEST_PAUSE_SECONDS, self._longest_wait())
        if self._away == 0:
            log.warning("events wait: what their handler needs is away", error=str(error), **self._where(event))
        self._away = min(self._away + 1, 20)
        await self._call("untry", event.id)
        heapq.heappush(self._retries, (monotonic() + pause, event.id))
        self.busy = False
        await asyncio.sleep(pause)
        self.busy = True

    async def _fail(self, event: Event, error: Exception) -> None:
        self._failed.inc()
        log.error("an event failed", exc_info=error, tries=event.tries, **self._where(event))
        if event.tries >= self.consumer.tries:
            await self._bury(event, _reason(error, self.consumer.most_seconds))
            return
        wait = min(self.consumer.retry_seconds * 2 ** (event.tries - 1), self._longest_wait())
        heapq.heappush(self._retries, (monotonic() + wait, event.id))

    def _longest_wait(self) -> float:
        return self.consumer.stale_seconds / 2  # longer, and another would take it for left behind

    async def _bury(self, event: Event, reason: str) -> None:
        keys = [self.consumer.key, self.consumer.dead_key]
        if await self._functions.run("events_bury", keys, *self._who, event.id, reason, MOST_DEAD):
            log.error("an event was given up", reason=reason, **self._where(event))
            self._dead.inc()

    async def _keep(self, left: set[str]) -> None:
        while True:
            await asyncio.sleep(self.consumer.stale_seconds / 3)
            with contextlib.suppress(Unavailable):
                await self._call("keep", *left)

    async def _give_back(self) -> None:
        await self._call("give_back", _ms(self.consumer.stale_seconds))

    async def _call(self, verb: str, *args: Any) -> Any:
        return await self._functions.run(f"events_{verb}", [self.consumer.key], *self._who, *args)

    def _where(self, event: Event) -> dict[str, str]:
        return {"stream": event.stream, "group": self.consumer.group, "id": event.id}


def _reason(error: Exception, most_seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"It took longer than {most_seconds:g} s."
    return f"{type(error).__name__}: {error}"[:500]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
