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

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from plaza.core import keys as core
from plaza.core.event_streams import EventStream, stream_of
from plaza.core.functions import Functions, Library
from plaza.core.valkey import Arg, ReplyError

EVENTS = Library.read("events", core.CATALOGUE, "plaza.core", "events")

MAX_DEAD_EVENTS = 10_000


class EventData(msgspec.Struct, forbid_unknown_fields=True):
    """The base of an event type: its fields are the event's `data`. Ids and usernames only, no texts, nothing private.

    The docstring of a type is its description in docs/events.md and in the AsyncAPI document.
    """

    type: ClassVar[str]  # such as "post.liked"
    subject: ClassVar[str]  # the field whose value is the event's subject


class Event(Struct, frozen=True, dict=True):
    """An event, as a handler gets it."""

    stream: str  # the domain
    entry_id: str  # in the stream
    fields: dict[str, str]
    tries: int = 1  # deliveries so far, including this one
    shard: int | None = None  # of the stream, on a cluster

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

    @cached_property
    def data(self) -> dict[str, Any]:
        """The fields of its type. Do not change them: everyone who handles the event gets the same."""
        data: dict[str, Any] = msgspec.json.decode(self.fields.get("data", "{}"))
        return data


class TypeFilter:
    """Selects events by their type: exact names, or `post.*` for all of a noun. Without patterns, all."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        names = set(patterns)
        self._everything = not names or "*" in names
        self._exact = frozenset(names)
        self._prefixes = tuple(name.removesuffix("*") for name in names if name.endswith(".*"))

    def __call__(self, type: str) -> bool:
        return self._everything or type in self._exact or type.startswith(self._prefixes)


class DataCheck:
    """Says whether events have what their types declare. Additional fields and other types are fine."""

    def __init__(self, declared: Iterable[type[EventData]]) -> None:
        self._declared = {kind.type: kind for kind in declared}

    def __call__(self, event: Event) -> bool:
        kind = self._declared.get(event.type)
        if kind is None:
            return True
        try:
            known = {name: value for name, value in event.data.items() if name in kind.__struct_fields__}
            return event.time >= 0 and isinstance(msgspec.convert(known, kind), kind)
        except (msgspec.DecodeError, AttributeError, ValueError):  # other services can write to streams
            return False


class Consumer(Struct, frozen=True):
    """Declares how a group handles the events of a domain. A handler can get an event twice.

    A group has a handler for one event or one for a batch. A batch that fails is handled event by event.
    """

    stream: str
    group: str
    handle: Callable[[Event], Awaitable[object]] | None = None
    handle_batch: Callable[[Sequence[Event]], Awaitable[object]] | None = None
    types: Sequence[str] = ()  # exact or `post.*`; other events are acknowledged unread; empty: all
    # An event that lacks what its type declares is skipped and counted: no other try would help it.
    declared: Sequence[type[EventData]] = ()
    # Makes everything that the group maintains right again, from source data. A worker calls it when events were
    # trimmed before the group had handled them.
    rebuild: Callable[[], Awaitable[object]] | None = None
    from_start: bool = True  # a new group starts with the oldest event; False: with the next one
    max_tries: int = 5
    batch_size: int = 128  # events fetched at once; they are handled in order
    retry_seconds: float = 1.0  # after the first failure, doubled after each further one
    timeout_seconds: float = 60.0  # a handler that takes longer is cancelled and counts as failed
    stale_seconds: float = 60.0  # other consumers claim an event after this time of silence

    def __post_init__(self) -> None:
        assert (self.handle is None) != (self.handle_batch is None), "a consumer has one handler"

    async def handle_all(self, events: Sequence[Event]) -> None:
        """Call the handler for events."""
        if self.handle_batch is not None:
            await self.handle_batch(events)
        elif self.handle is not None:
            for event in events:
                await self.handle(event)


class Events:
    """Adds entries to streams, and creates groups that read them."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def emit(self, stream: str, owner: str, **fields: Arg) -> str:
        """Add an entry to a stream and return its id. One round trip. Entries of one owner stay in order.

        A command that changes data uses Lua's `emit()` instead, which adds the event in the same atomic step.
        """
        words = [word for pair in fields.items() for word in pair]
        return str(await self._functions.valkey.call("XADD", stream_of(stream, owner).key, "*", *words))

    async def ensure_group(self, stream: EventStream, group: str, *, from_start: bool = True) -> None:
        """Create the group if needed."""
        command = ("XGROUP", "CREATE", stream.key, group, "0" if from_start else "$", "MKSTREAM")
        try:
            await self._functions.valkey.call(*command, key=stream.key)
        except ReplyError as error:
            if error.code != "BUSYGROUP":
                raise

    async def revive(self, stream: EventStream, dead_id: str) -> str | None:
        """Add a dead event to its stream again. Returns its new entry id, or None if there is no such event."""
        new: str | None = await self._functions.run("events_revive", [stream.key, stream.dead_key], dead_id)
        return new
