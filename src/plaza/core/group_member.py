"""One member of a consumer group, on all streams of a domain: what it can ask Valkey for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plaza.core.event_streams import EventStream
from plaza.core.events import MAX_DEAD_EVENTS, Event
from plaza.core.functions import Functions
from plaza.core.sequences import pairs_to_dict
from plaza.core.valkey import Arg

CLAIMED_ALL = "0-0"


class GroupMember:
    """Reads events for a group, under a unique name. An event belongs to it until it is acknowledged.

    Each method takes one round trip, on a cluster too: what it asks of several shards goes to their nodes together.
    """

    def __init__(
        self, functions: Functions, streams: Iterable[EventStream], group: str, name: str, stale_seconds: float
    ) -> None:
        self._functions = functions
        self._streams = {stream.shard: stream for stream in streams}
        self._group_and_name = (group, name)
        self._stale_ms = round(stale_seconds * 1000)

    async def read_new(self, streams: Sequence[EventStream], count: int) -> list[Event]:
        """Return events that no member of the group has got yet, at most so many of each stream. Does not wait."""
        command = ("XREADGROUP", "GROUP", *self._group_and_name, "COUNT", count, "STREAMS")
        replies = await self._functions.valkey.batch([(*command, stream.key, ">") for stream in streams])
        return [
            Event(stream.name, id, pairs_to_dict(words), shard=stream.shard)
            for stream, reply in zip(streams, replies, strict=True)
            for id, words in (reply[stream.key] if reply else ())
        ]

    async def claim(self, cursors: Mapping[EventStream, str], count: int) -> tuple[dict[EventStream, str], list[Event]]:
        """Take over events whose member has been silent for too long, from a cursor of each stream on.

        Returns the next cursors, `CLAIMED_ALL` at the end of a stream.
        """
        calls = [self._call("claim", stream, self._stale_ms, count, cursor) for stream, cursor in cursors.items()]
        following, events = dict[EventStream, str](), list[Event]()
        for stream, (cursor, *entries) in zip(cursors, await asyncio.gather(*calls), strict=True):
            following[stream] = cursor
            events += [_event_from_entry(stream, entry) for entry in entries]
        return following, events

    async def retry(self, event: Event) -> list[Event]:
        """Return an event again, as another try; nothing if another member has taken it over."""
        stream = self._stream_of(event)
        entry = await self._call("retry", stream, event.entry_id)
        return [_event_from_entry(stream, entry)] if entry else []

    async def acknowledge(self, events: Iterable[Event]) -> None:
        """Tell that events are handled. It goes on if the caller is cancelled."""
        group, _ = self._group_and_name
        commands = [("XACK", stream.key, group, *ids) for stream, ids in self._by_stream(events)]
        await asyncio.shield(asyncio.ensure_future(self._functions.valkey.batch(commands)))

    async def touch(self, events: Iterable[Event]) -> None:
        """Keep events in progress from being claimed by others."""
        await asyncio.gather(*(self._call("touch", stream, *ids) for stream, ids in self._by_stream(events)))

    async def release(self) -> None:
        """Let others claim all unhandled events at once; the tries in progress do not count."""
        await asyncio.gather(*(self._call("release", stream, self._stale_ms) for stream in self._streams.values()))

    async def dead_letter(self, event: Event, reason: str) -> bool:
        """Move an event to the dead events. Returns False if another member has taken it over."""
        stream = self._stream_of(event)
        keys, args = [stream.key, stream.dead_key], (event.entry_id, reason, MAX_DEAD_EVENTS)
        return bool(await self._functions.run("events_dead_letter", keys, *self._group_and_name, *args))

    def _stream_of(self, event: Event) -> EventStream:
        return self._streams[event.shard]

    def _by_stream(self, events: Iterable[Event]) -> Iterable[tuple[EventStream, list[str]]]:
        """Return the entry ids of events, by stream."""
        found = dict[EventStream, list[str]]()
        for event in events:
            found.setdefault(self._stream_of(event), []).append(event.entry_id)
        return found.items()

    async def _call(self, command: str, stream: EventStream, *args: Arg) -> Any:
        return await self._functions.run(f"events_{command}", [stream.key], *self._group_and_name, *args)


def _event_from_entry(stream: EventStream, entry: list[Any]) -> Event:
    """Return the event of `[id, tries, [field, value, …]]`, as the Lua functions reply."""
    return Event(stream.name, entry[0], pairs_to_dict(entry[2]), int(entry[1]), stream.shard)
