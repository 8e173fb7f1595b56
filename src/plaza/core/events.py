"""Events: what happened, for consumers that the domains do not know.

A domain declares its event types in `events.py`, and lists them in its `Domain`:

    class PostLiked(EventData):
        \"\"\"A user liked a post.\"\"\"

        type: ClassVar[str] = "post.liked"
        post: str
        username: str

A command emits an event in the same atomic step as its source data (`emission.lua`). Consumer groups read it:

    async def notify(event: Event) -> None:
        if event.type == "post.liked":
            await add(event.data["author"], event.data["username"])

    Consumer("social", "notifications", notify)

A delivered event belongs to its consumer until it is acknowledged; if the consumer dies, another claims it. So no event
is lost, and a handler can run twice for one event: handlers must be idempotent. An event that keeps failing moves to
`events:<stream>:dead` with the reason, so that it does not block the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import structlog

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.event_streams import EventStream, all_streams, stream_of
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


class EventData(msgspec.Struct, forbid_unknown_fields=True):
    """The base of an event type: its fields are the event's `data`. Ids and usernames only, no texts, nothing private.

    The docstring of a type is its description in docs/events.md and in the AsyncAPI document.
    """

    type: ClassVar[str]  # such as "post.liked"
    subject: ClassVar[str]  # the field whose value is the event's subject


@dataclass(frozen=True, slots=True)
class Event:
    """An event, as a handler gets it."""

    stream: str  # the domain
    entry_id: str  # in the stream
    fields: dict[str, str]
    tries: int = 1  # deliveries so far, including this one

    @property
    def id(self) -> str:
        """An id that no other event has. An event that is delivered twice has the same id both times."""
        return self.fields.get("id") or f"{self.stream}-{self.entry_id}"

    @property
    def type(self) -> str:
        return self.fields.get("type", "")

    @property
    def subject(self) -> str:
        """What the event is about. The events of one subject are in order."""
        return self.fields.get("subject", "")

    @property
    def time(self) -> int:
        """When it happened, Unix milliseconds."""
        return int(self.fields.get("time") or self.entry_id.partition("-")[0])

    @property
    def origin(self) -> str:
        """`import` if another system or the demo brought it in, else empty."""
        return self.fields.get("origin", "")

    @property
    def data(self) -> dict[str, Any]:
        """The fields of its type, decoded at each access."""
        data: dict[str, Any] = msgspec.json.decode(self.fields.get("data", "{}"))
        return data


@dataclass(frozen=True, slots=True)
class Consumer:
    """Declares how a group handles the events of a domain. `handle` can get an event twice."""

    stream: str
    group: str
    handle: Callable[[Event], Awaitable[object]]
    max_tries: int = 5
    batch_size: int = 32  # events fetched at once; they are handled in order
    retry_seconds: float = 1.0  # after the first failure, doubled after each further one
    timeout_seconds: float = 60.0  # a handler that takes longer is cancelled and counts as failed
    stale_seconds: float = 60.0  # other consumers claim an event after this time of silence


class Events:
    """Adds events, and limits the size of their streams."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def emit(self, stream: str, owner: str, **fields: Arg) -> str:
        """Add an entry to a stream and return its id. One round trip. Events of one owner stay in order.

        A command that changes data uses Lua's `emit()` instead, which adds the event in the same atomic step.
        """
        words = [word for pair in fields.items() for word in pair]
        return str(await self._functions.valkey.call("XADD", stream_of(stream, owner).key, "*", *words))

    async def ensure_group(self, stream: EventStream, group: str) -> None:
        """Create the group if needed. It starts with the oldest event of the stream."""
        try:
            await self._functions.valkey.call("XGROUP", "CREATE", stream.key, group, "0", "MKSTREAM", key=stream.key)
        except ReplyError as error:
            if error.code != "BUSYGROUP":
                raise

    async def trim(self, name: str, max_events: int = MAX_EVENTS) -> int:
        """Remove events that every group has handled, in bounded steps. Returns how many."""
        return sum([await self._trim_stream(stream, max_events) for stream in all_streams(name)])

    async def _trim_stream(self, stream: EventStream, max_events: int) -> int:
        removed = 0
        while True:
            reply = await self._functions.run("events_trim", [stream.key], max_events, TRIM_STEP, CONSUMER_GONE_MS)
            removed += int(reply[0])
            if reply[1]:
                log.error("stream_full_events_lost", stream=stream.key, lost=reply[1], max_events=max_events)
                metrics.EVENTS_DROPPED.labels(stream.name).inc(reply[1])
            for group, waiting in reply[2:]:
                metrics.EVENTS_WAITING.labels(stream.name, group).set(waiting)
            if reply[0] < TRIM_STEP:
                return removed

    async def revive(self, stream: EventStream, dead_id: str) -> str | None:
        """Add a dead event to its stream again. Returns its new entry id, or None if there is no such event."""
        new: str | None = await self._functions.run("events_revive", [stream.key, stream.dead_key], dead_id)
        return new


def event_from_entry(stream: str, entry: list[Any]) -> Event:
    """Return the event of `[id, tries, [field, value, …]]`, as the Lua functions reply."""
    return Event(stream, entry[0], pairs_to_dict(entry[2]), int(entry[1]))
