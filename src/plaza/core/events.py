"""What happened, told through streams to whoever reacts to it.

A verb tells an event in the same atomic step as the facts it changes (`event()` in Lua); groups of consumers read it,
each group once. An event that was given to a consumer stays its own until it is acknowledged: if the consumer dies,
another takes it over. So nothing is lost, and a handler may run twice for one event: the second time must be harmless.
An event that fails again and again goes to `events:<stream>:dead`, with the reason, so that it does not block the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.functions import Functions, Library
from plaza.core.valkey import Arg, ReplyError

EVENTS = Library.read("events", core.CATALOGUE, "plaza.core", "events")

# A stream nobody empties must not fill the memory. A million small events take some 100 MB.
MOST_EVENTS = 1_000_000
MOST_DEAD = 10_000

# Removing 10,000 events takes Valkey a millisecond or two.
TRIM_STEP = 10_000

# A consumer without work that has not been heard of for this long was a process that is gone.
CONSUMER_GONE_MS = 3_600_000

log = structlog.get_logger("plaza.events")


@dataclass(frozen=True, slots=True)
class Event:
    """One event, as a handler gets it."""

    stream: str
    id: str
    fields: dict[str, str]
    tries: int = 1  # this one included


@dataclass(frozen=True, slots=True)
class Consumer:
    """A group's way to handle a stream. `handle` may be given an event twice."""

    stream: str
    group: str
    handle: Callable[[Event], Awaitable[object]]
    tries: int = 5
    batch: int = 32  # events fetched at once; they are handled in order
    retry_seconds: float = 1.0  # after the first failure; doubled with every further one
    most_seconds: float = 60.0  # a handler that takes longer is broken off, and failed
    stale_seconds: float = 60.0  # an event whose consumer has been silent for so long is taken over

    @property
    def key(self) -> str:
        return core.EVENTS(self.stream)

    @property
    def dead_key(self) -> str:
        return core.EVENTS_DEAD(self.stream)


class Events:
    """Tells events, and keeps their streams in bounds."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def emit(self, stream: str, **fields: Arg) -> str:
        """Tell an event; returns its id. One round trip. Where facts change, Lua's `event()` is the safe way."""
        words = [word for pair in fields.items() for word in pair]
        return str(await self._functions.valkey.call("XADD", core.EVENTS(stream), "*", *words))

    async def ensure_group(self, stream: str, group: str) -> None:
        """Have the group, so that no event told from now on is removed before it has handled it."""
        try:
            await self._functions.valkey.call(
                "XGROUP", "CREATE", core.EVENTS(stream), group, "0", "MKSTREAM", key=core.EVENTS(stream)
            )
        except ReplyError as error:
            if error.code != "BUSYGROUP":
                raise

    async def trim(self, stream: str, most: int = MOST_EVENTS) -> int:
        """Remove what every group has handled, in bounded steps. Returns how many events went."""
        removed = 0
        while True:
            reply = await self._functions.run("events_trim", [core.EVENTS(stream)], most, TRIM_STEP, CONSUMER_GONE_MS)
            removed += int(reply[0])
            if reply[1]:
                log.error("a stream is full: events were lost unread", stream=stream, lost=reply[1], most=most)
                metrics.EVENTS_DROPPED.labels(stream).inc(reply[1])
            for group, waiting in reply[2:]:
                metrics.EVENTS_WAITING.labels(stream, group).set(waiting)
            if reply[0] < TRIM_STEP:
                return removed

    async def revive(self, stream: str, dead_id: str) -> str | None:
        """Tell a dead event once more. Returns its new id, or None if there is no such event."""
        keys = [core.EVENTS(stream), core.EVENTS_DEAD(stream)]
        new: str | None = await self._functions.run("events_revive", keys, dead_id)
        return new


def event_from_entry(stream: str, entry: list[Any]) -> Event:
    """From `[id, tries, [field, value, …]]`, as our functions answer."""
    flat = entry[2]
    return Event(stream, entry[0], dict(zip(flat[::2], flat[1::2], strict=True)), int(entry[1]))
