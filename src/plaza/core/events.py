"""Events in Valkey streams, with consumer groups.

A command adds an event in the same atomic step as its source data (`event()` in Lua). Each consumer group handles it
once. A delivered event belongs to its consumer until it is acknowledged; if the consumer dies, another claims it. So
no event is lost, and a handler can run twice for one event: handlers must be idempotent. An event that keeps failing
moves to `events:<stream>:dead` with the reason, so that it does not block the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.functions import Functions, Library
from plaza.core.sequences import pairs_to_dict
from plaza.core.valkey import Arg, ReplyError

EVENTS = Library.read("events", core.CATALOGUE, "plaza.core", "events")

# A stream without working consumers must not fill the memory. A million small events take about 100 MB.
MAX_EVENTS = 1_000_000
MAX_DEAD_EVENTS = 10_000

# Valkey removes 10,000 events in one or two milliseconds.
TRIM_STEP = 10_000

# A consumer without pending events that has been silent for this long belongs to a process that ended.
CONSUMER_GONE_MS = 3_600_000

log = structlog.get_logger("plaza.events")


@dataclass(frozen=True, slots=True)
class Event:
    """An event, as a handler gets it."""

    stream: str
    id: str
    fields: dict[str, str]
    tries: int = 1  # deliveries so far, including this one


@dataclass(frozen=True, slots=True)
class Consumer:
    """Declares how a group handles a stream. `handle` can get an event twice."""

    stream: str
    group: str
    handle: Callable[[Event], Awaitable[object]]
    max_tries: int = 5
    batch_size: int = 32  # events fetched at once; they are handled in order
    retry_seconds: float = 1.0  # after the first failure, doubled after each further one
    timeout_seconds: float = 60.0  # a handler that takes longer is cancelled and counts as failed
    stale_seconds: float = 60.0  # other consumers claim an event after this time of silence

    @property
    def key(self) -> str:
        return core.EVENTS(self.stream)

    @property
    def dead_key(self) -> str:
        return core.EVENTS_DEAD(self.stream)


class Events:
    """Adds events, and limits the size of their streams."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def emit(self, stream: str, **fields: Arg) -> str:
        """Add an event and return its id. One round trip. A command that changes data uses Lua's `event()` instead."""
        words = [word for pair in fields.items() for word in pair]
        return str(await self._functions.valkey.call("XADD", core.EVENTS(stream), "*", *words))

    async def ensure_group(self, stream: str, group: str) -> None:
        """Create the group if needed. From now on no event is removed before the group has handled it."""
        try:
            await self._functions.valkey.call(
                "XGROUP", "CREATE", core.EVENTS(stream), group, "0", "MKSTREAM", key=core.EVENTS(stream)
            )
        except ReplyError as error:
            if error.code != "BUSYGROUP":
                raise

    async def trim(self, stream: str, max_events: int = MAX_EVENTS) -> int:
        """Remove events that every group has handled, in bounded steps. Returns how many."""
        removed = 0
        while True:
            reply = await self._functions.run(
                "events_trim", [core.EVENTS(stream)], max_events, TRIM_STEP, CONSUMER_GONE_MS
            )
            removed += int(reply[0])
            if reply[1]:
                log.error("stream_full_events_lost", stream=stream, lost=reply[1], max_events=max_events)
                metrics.EVENTS_DROPPED.labels(stream).inc(reply[1])
            for group, waiting in reply[2:]:
                metrics.EVENTS_WAITING.labels(stream, group).set(waiting)
            if reply[0] < TRIM_STEP:
                return removed

    async def revive(self, stream: str, dead_id: str) -> str | None:
        """Add a dead event to its stream again. Returns its new id, or None if there is no such event."""
        keys = [core.EVENTS(stream), core.EVENTS_DEAD(stream)]
        new: str | None = await self._functions.run("events_revive", keys, dead_id)
        return new


def event_from_entry(stream: str, entry: list[Any]) -> Event:
    """Return the event of `[id, tries, [field, value, …]]`, as the Lua functions reply."""
    return Event(stream, entry[0], pairs_to_dict(entry[2]), int(entry[1]))
