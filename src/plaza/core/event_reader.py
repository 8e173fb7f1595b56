"""Fetches the events of a consumer, in batches.

In this order: events that failed here and are due for another try, events of dead consumers, new events. On a cluster a
batch has events of all shards, so a handler of batches costs as little as on one server.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from math import inf
from time import monotonic

from plaza.core import metrics
from plaza.core.event_streams import EventStream
from plaza.core.events import Consumer, Event
from plaza.core.group_member import CLAIMED_ALL, GroupMember
from plaza.core.stream_watch import PAUSE_SECONDS, StreamNews

# The longest wait for new events without looking. The watch tells earlier.
MAX_WAIT_SECONDS = 5.0


class RetrySchedule:
    """When the events that failed in this process are tried again."""

    def __init__(self, stale_seconds: float) -> None:
        self._max_wait_seconds = stale_seconds / 2  # after a longer wait another consumer would claim the event
        self._order = itertools.count()
        self._due: list[tuple[float, int, Event]] = []  # (when, order of failures, event)

    def add(self, event: Event, wait_seconds: float) -> None:
        due = monotonic() + min(wait_seconds, self._max_wait_seconds)
        heapq.heappush(self._due, (due, next(self._order), event))

    def pop_due(self) -> Event | None:
        """Remove and return an event that is due; None if there is none."""
        return heapq.heappop(self._due)[2] if self.next_at() <= monotonic() else None

    def next_at(self) -> float:
        """Return when the next event is due, by `monotonic`; infinity if there is none."""
        return self._due[0][0] if self._due else inf


class EventReader:
    """Reads what a member of a group is to handle next."""

    def __init__(
        self,
        consumer: Consumer,
        streams: Sequence[EventStream],
        member: GroupMember,
        news: StreamNews,
    ) -> None:
        self._consumer = consumer
        self._streams = streams
        self._member = member
        self._news = news
        self._claimed = metrics.EVENTS_CLAIMED.labels(consumer.stream, consumer.group)
        self.restart()

    def restart(self) -> None:
        """Start with claims and a look at all streams. What was to be retried is claimed."""
        self._retries = RetrySchedule(self._consumer.stale_seconds)
        self._claiming: dict[EventStream, str] = {}  # the streams that are scanned now, and how far
        self._claim_at = self._read_at = self._look_at = 0.0

    def retry_later(self, event: Event, wait_seconds: float) -> None:
        """Return an event again after a while."""
        self._retries.add(event, wait_seconds)

    async def next_batch(self) -> list[Event]:
        """Return events to handle; none at times."""
        if (event := self._retries.pop_due()) is not None:
            return await self._member.retry(event)
        if self._claim_at <= monotonic():
            return await self._claim()
        if (wait := self._read_at - monotonic()) > 0:
            await asyncio.sleep(wait)
        return await self._read_new()

    async def _claim(self) -> list[Event]:
        """Claim some events whose consumer has been silent for too long."""
        self._claiming = self._claiming or dict.fromkeys(self._streams, CLAIMED_ALL)
        cursors, events = await self._member.claim(self._claiming, self._share(self._claiming))
        self._claiming = {stream: cursor for stream, cursor in cursors.items() if cursor != CLAIMED_ALL}
        if not self._claiming:  # all streams were scanned
            self._claim_at = monotonic() + self._consumer.stale_seconds / 4
        self._claimed.inc(len(events))
        return events

    async def _read_new(self) -> list[Event]:
        """Read the streams with new events, and regularly all of them."""
        if self._look_at <= monotonic():
            self._news.tell_all()
            self._look_at = monotonic() + MAX_WAIT_SECONDS
        due = min(self._look_at, self._claim_at, self._retries.next_at())
        streams = await self._news.wait(max(due - monotonic(), 0.001))
        if not streams:
            return []
        share = self._share(streams)
        events = await self._member.read_new(streams, share)
        read = Counter(event.shard for event in events)
        if full := [stream.key for stream in streams if read[stream.shard] == share]:
            self._news.tell(full)
        elif events:
            self._read_at = monotonic() + PAUSE_SECONDS
        return events

    def _share(self, streams: Collection[EventStream]) -> int:
        """Return how many events of each stream make a batch."""
        return max(1, self._consumer.batch_size // len(streams))
