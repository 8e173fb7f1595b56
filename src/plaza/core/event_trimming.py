"""Trims streams of events by age and length, and rebuilds groups that fell behind.

Age and length alone decide: a consumer that stopped must not fill the memory. A group that loses events it has not
handled is noted beside its stream (`events:<stream>:behind`), counted, and shown on the Health page. If its consumer
can rebuild what it maintains from source data, a job of its own does so, and removes the note.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from plaza.core import metrics
from plaza.core.event_streams import SHARDS, EventStream, all_streams
from plaza.core.events import Consumer
from plaza.core.functions import Functions
from plaza.core.leases import Lease
from plaza.core.timers import Timer

# Valkey removes 10,000 events in one or two milliseconds.
TRIM_STEP = 10_000

# A consumer without pending events that has been silent for this long belongs to a process that ended.
CONSUMER_GONE_MS = 3_600_000

EVERY_SECONDS = 60
DAY_MS = 86_400_000

log = structlog.get_logger("plaza.events")


class EventTrimming:
    """Removes old events. A domain has about `max_events` at most, and none much older than `days`."""

    def __init__(self, functions: Functions, days: float, max_events: int, names: Sequence[str] = ()) -> None:
        self._functions = functions
        self._names = names  # the domains that `all_groups_behind` looks at
        self._max_age_ms = round(days * DAY_MS)
        self._max_events = max_events

    async def trim(self, name: str) -> int:
        """Trim the streams of a domain in bounded steps. Returns how many events were removed."""
        return sum([await self._trim_stream(stream) for stream in all_streams(name)])

    async def _trim_stream(self, stream: EventStream) -> int:
        max_events = self._max_events if stream.shard is None else self._max_events // SHARDS
        limits, removed = (self._max_age_ms, max_events, TRIM_STEP, CONSUMER_GONE_MS), 0
        while True:
            keys = [stream.key, stream.behind_key, stream.dead_key]
            count, *groups = await self._functions.run("events_trim", keys, *limits)
            removed += int(count)
            for group, waiting, lost in groups:
                metrics.EVENTS_WAITING.labels(stream.name, group).set(waiting)
                if lost:
                    log.error("group_fell_behind", stream=stream.key, group=group)
                    metrics.EVENTS_BEHIND.labels(stream.name, group).inc()
            if count < TRIM_STEP:
                return removed

    async def groups_behind(self, name: str) -> dict[str, int]:
        """Return the groups that lost events of a domain, and when, Unix milliseconds. One round trip."""
        found = await self._functions.valkey.batch([("HGETALL", stream.behind_key) for stream in all_streams(name)])
        latest: dict[str, int] = {}
        for groups in found:
            for group, at in groups.items():
                latest[group] = max(int(at), latest.get(group, 0))
        return latest

    async def all_groups_behind(self) -> list[tuple[str, str, int]]:
        """Return domain, group and time of every loss that is not repaired yet. One round trip for each domain."""
        return [
            (name, group, at) for name in self._names for group, at in sorted((await self.groups_behind(name)).items())
        ]

    async def rebuild(self, consumer: Consumer) -> bool:
        """Rebuild what a group maintains if it lost events. Returns whether it did."""
        lost_at = (await self.groups_behind(consumer.stream)).get(consumer.group)
        if lost_at is None or consumer.rebuild is None:
            return False
        log.info("group_rebuilding", stream=consumer.stream, group=consumer.group)
        await consumer.rebuild()
        for stream in all_streams(consumer.stream):  # what is lost from now on is noted again, with a later time
            await self._functions.run("events_rebuilt", [stream.behind_key], consumer.group, lost_at)
        return True

    def timers(self, names: Sequence[str], consumers: Sequence[Consumer]) -> list[Timer]:
        """Return the job that trims these domains' streams, and a job for each group that can be rebuilt."""

        async def trim(_: Lease) -> str:
            return f"{sum([await self.trim(name) for name in names])} events removed"

        rebuilds = [self._rebuild_timer(consumer) for consumer in consumers if consumer.rebuild is not None]
        return [Timer("core.trim", EVERY_SECONDS, trim), *rebuilds]

    def _rebuild_timer(self, consumer: Consumer) -> Timer:
        async def rebuild(_: Lease) -> str:
            return "rebuilt" if await self.rebuild(consumer) else "no event was lost"

        return Timer(f"rebuild.{consumer.stream}.{consumer.group}", EVERY_SECONDS, rebuild)
