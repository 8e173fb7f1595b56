"""Sends events to listeners of this process: one read of the streams, however many listeners.

The hub follows all streams while it has listeners. Entries are read only when their millisecond is over, so that later
ones of any stream come after them in the total order (`event_cursor.py`). A listener that continues after an id first
reads by itself what it has missed; then it joins the others. A listener that does not keep up is cut off: its client
connects again and continues where it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

import structlog
from msgspec import Struct, field

from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Gone, Invalid, PlazaError, Unavailable
from plaza.core.event_cursor import (
    Cursor,
    StreamEntry,
    cursor_from_position,
    entry_id_text,
    merge_entries,
    parse_entry_id,
)
from plaza.core.event_streams import SHARDS, EventStream, all_streams
from plaza.core.event_trimming import DAY_MS
from plaza.core.events import TypeFilter
from plaza.core.functions import Functions
from plaza.core.valkey.client import BlockingConnection
from plaza.core.valkey.slots import key_slot

# Events that wait for one listener, about a megabyte.
MAX_WAITING = 2_000
MAX_LISTENERS = 5_000
BATCH = 500
BLOCK_SECONDS = 5.0
# Until the millisecond of the newest entry is over.
HELD_SECONDS = 0.002
RETRY_SECONDS = 1.0

log = structlog.get_logger("plaza.events")


class EventsTrimmed(Gone):
    title, code = "Events after this id have been removed", "events_trimmed"


class TooManyListeners(Unavailable):
    title, code = "This process has too many listeners", "too_many_listeners"


class Listener:
    """One subscriber: the events that wait for it, and what it wants."""

    def __init__(self, wants: TypeFilter, subject: str | None, *, has_caught_up: bool) -> None:
        self.is_cut_off = False
        self.has_caught_up = has_caught_up
        self.skip: Cursor = {}  # it has these already
        self._wants = wants
        self._subject = subject
        self._waiting: deque[StreamEntry] = deque()
        self._arrived = asyncio.Event()

    @property
    def is_current(self) -> bool:
        """Whether it has got everything that the hub has read."""
        return self.has_caught_up and not self._waiting and not self.is_cut_off

    def matches(self, entry: StreamEntry) -> bool:
        return self._subject in (None, entry.event.subject) and self._wants(entry.event.type)

    def offer(self, entry: StreamEntry) -> None:
        """Give it an event. If too many wait, it is cut off."""
        if self.is_cut_off or entry.entry <= self.skip.get(entry.key, (-1, 0)) or not self.matches(entry):
            return
        if len(self._waiting) >= MAX_WAITING:
            self.is_cut_off = True
        else:
            self._waiting.append(entry)
        self._arrived.set()

    async def events(self) -> AsyncIterator[StreamEntry]:
        """Yield events as they come, until it is cut off."""
        while not self.is_cut_off:
            while self._waiting:
                yield self._waiting.popleft()
            self._arrived.clear()
            if not self.is_cut_off:
                await self._arrived.wait()


class EventSubscription(AsyncIterator[StreamEntry]):
    """The events of one listener. Close it, also if it was never read."""

    def __init__(
        self, entries: AsyncIterator[StreamEntry], position: Callable[[], str | None], leave: Callable[[], None]
    ) -> None:
        self._entries = entries
        self.position = position  # returns the id to continue after; None if that is the id of the last event
        self._leave = leave

    async def __anext__(self) -> StreamEntry:
        return await anext(self._entries)

    async def aclose(self) -> None:
        self._leave()


class StreamGroup(Struct):
    """Streams in one slot, which one command can read: all of them on one server, those of a shard on a cluster."""

    names: dict[str, str] = field(default_factory=dict)  # by key

    @property
    def keys(self) -> list[str]:
        return list(self.names)


class EventHub:
    """The listeners of this process."""

    def __init__(self, functions: Functions, names: Sequence[str], clock: Clock, days: int, max_events: int) -> None:
        self._functions = functions
        self._clock = clock
        self._days = days
        self._max_events = max_events
        self._streams: list[EventStream] = [stream for name in names for stream in all_streams(name)]
        self._groups = self._group_streams()
        self._cursor: Cursor = {}  # what all listeners have been given
        self._listeners: set[Listener] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()

    def _group_streams(self) -> list[StreamGroup]:
        groups: dict[int, StreamGroup] = {}
        for stream in self._streams:
            slot = key_slot(stream.key) if self._functions.valkey.clustered else 0
            groups.setdefault(slot, StreamGroup()).names[stream.key] = stream.name
        return list(groups.values())

    async def subscribe(self, wants: TypeFilter, subject: str | None, after: str | None) -> EventSubscription:
        """Listen to events from now on, or to all after an id (`Last-Event-ID`).

        Raises `EventsTrimmed` if some of those have been removed, and `Invalid` if the id is not one.
        """
        if len(self._listeners) >= MAX_LISTENERS:
            raise TooManyListeners("Too many clients listen to events here. Try again later.")
        cursor = None if after is None else await self._cursor_after(after)
        listener = Listener(wants, subject, has_caught_up=cursor is None)
        if cursor is not None:
            listener.skip = dict.fromkeys(cursor, (2**63, 0))  # everything, until it has caught up
        self._listeners.add(listener)
        try:
            await self._start()
        except BaseException:
            self._leave(listener)
            raise
        events = self._listen(listener, cursor)
        return EventSubscription(events, partial(self._position, listener), partial(self._leave, listener))

    def _position(self, listener: Listener) -> str | None:
        newest, name = max((self._cursor.get(stream.key, (0, 0)), stream.name) for stream in self._streams)
        return f"{name}-{entry_id_text(newest)}" if listener.is_current and newest > (0, 0) else None

    def _leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners:
            self.close()

    async def _listen(self, listener: Listener, cursor: Cursor | None) -> AsyncIterator[StreamEntry]:
        if cursor is not None:
            async for entry in self._catch_up(listener, cursor):
                yield entry
        async for entry in listener.events():
            yield entry

    async def _cursor_after(self, position: str) -> Cursor:
        cursor = cursor_from_position(position, self._streams)
        if cursor is None:
            raise Invalid("Invalid id. Connect again without it.", field="Last-Event-ID")
        await self._require_untrimmed(cursor)
        return cursor

    async def _require_untrimmed(self, cursor: Cursor) -> None:
        """Raise `EventsTrimmed` if a stream may have lost events after the cursor. One round trip."""
        oldest_ms = self._clock.now_ms() - self._days * DAY_MS
        max_events = self._max_events // (SHARDS if self._functions.valkey.clustered else 1)
        infos = await self._functions.valkey.batch([("XINFO", "STREAM", key) for key in cursor], return_errors=True)
        for info, entry in zip(infos, cursor.values(), strict=True):
            if isinstance(info, Exception) or info["entries-added"] == info["length"]:
                continue  # there is no stream, or nothing was ever removed
            first = info["first-entry"]
            begins_later = first is None or entry < parse_entry_id(first[0])
            # Within its days, an event is removed only if the stream is full.
            if begins_later and (entry[0] < oldest_ms or info["length"] > max_events // 2):
                raise EventsTrimmed("Events after this id have been removed. Read the current state, then start again.")

    async def _catch_up(self, listener: Listener, cursor: Cursor) -> AsyncIterator[StreamEntry]:
        """Yield what the hub has already given to others, then join them."""
        while behind := [group for group in self._groups if self._is_behind(group, cursor)]:
            for group in behind:
                entries, held = await self._read(group, cursor)
                for entry in entries:
                    if listener.matches(entry):
                        yield entry
                if held:
                    await asyncio.sleep(HELD_SECONDS)
                elif not entries:  # what the hub has given was trimmed since
                    cursor.update({key: max(cursor[key], self._cursor[key]) for key in group.keys})
        listener.skip, listener.has_caught_up = cursor, True

    def _is_behind(self, group: StreamGroup, cursor: Cursor) -> bool:
        return any(cursor[key] < self._cursor[key] for key in group.keys)

    async def _start(self) -> None:
        """Follow the streams from their newest entries on, unless that is happening already."""
        async with self._starting:
            if self._tasks:
                return
            newest = await self._functions.valkey.batch(
                [("XREVRANGE", stream.key, "+", "-", "COUNT", 1) for stream in self._streams]
            )
            self._cursor = {
                stream.key: parse_entry_id(entries[0][0]) if entries else (0, 0)
                for stream, entries in zip(self._streams, newest, strict=True)
            }
            self._tasks = [asyncio.create_task(self._follow(group)) for group in self._groups]

    async def _follow(self, group: StreamGroup) -> None:
        while True:
            try:
                async with self._functions.valkey.blocking() as connection:
                    while True:
                        await self._deliver_new(group, connection)
            except (Unavailable, PlazaError) as error:
                log.warning("events_not_read", error=str(error))
            except Exception as error:
                log.error("events_not_read", exc_info=error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _deliver_new(self, group: StreamGroup, connection: BlockingConnection) -> None:
        entries, held = await self._read(group, self._cursor)
        for entry in entries:
            for listener in list(self._listeners):
                listener.offer(entry)
                if listener.is_cut_off:
                    metrics.EVENT_LISTENERS_CUT_OFF.inc()
                    self._listeners.discard(listener)
        if entries:
            await asyncio.sleep(0)  # let listeners send what they have got
        elif held:
            await asyncio.sleep(HELD_SECONDS)
        else:
            block = ("BLOCK", round(BLOCK_SECONDS * 1000))
            last = [entry_id_text(self._cursor[key]) for key in group.keys]
            await connection.call("XREAD", "COUNT", 1, *block, "STREAMS", *group.keys, *last)

    async def _read(self, group: StreamGroup, cursor: Cursor) -> tuple[list[StreamEntry], bool]:
        """Return the next entries after a cursor, which moves on, and whether newer ones must wait. One round trip."""
        last = [entry_id_text(cursor[key]) for key in group.keys]
        held, *replies = await self._functions.query("events_after", group.keys, BATCH, *last)
        entries = merge_entries(group.names, zip(group.keys, replies, strict=True), BATCH)
        for entry in entries:
            cursor[entry.key] = max(entry.entry, cursor[entry.key])
        return entries, bool(held)

    def close(self) -> None:
        """Stop following the streams."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
