"""One member of a consumer group, on one stream: what it can ask Valkey for. Each method is one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from plaza.core.event_streams import EventStream
from plaza.core.events import MAX_DEAD_EVENTS, Event, event_from_entry
from plaza.core.functions import Functions
from plaza.core.sequences import pairs_to_dict


class GroupMember:
    """Reads events of a stream for a group, under a unique name. An event belongs to it until it is acknowledged."""

    def __init__(self, functions: Functions, stream: EventStream, group: str, name: str, stale_seconds: float) -> None:
        self.stream = stream
        self.group = group
        self._functions = functions
        self._group_and_name = (group, name)
        self._stale_ms = round(stale_seconds * 1000)

    async def read_new(self, count: int) -> list[Event]:
        """Return events that no member of the group has got yet. Does not wait."""
        key = self.stream.key
        command = ("XREADGROUP", "GROUP", *self._group_and_name, "COUNT", count, "STREAMS", key, ">")
        reply = await self._functions.valkey.call(*command)
        return [Event(self.stream.name, id, pairs_to_dict(words)) for id, words in reply[key]] if reply else []

    async def claim(self, count: int, cursor: str) -> tuple[str, list[Event]]:
        """Take over events whose member has been silent for too long. Returns the next cursor, `0-0` at the end."""
        following, *entries = await self._call("claim", self._stale_ms, count, cursor)
        return following, [event_from_entry(self.stream.name, entry) for entry in entries]

    async def retry(self, entry_id: str) -> list[Event]:
        """Return an event again, as another try; nothing if another member has taken it over."""
        entry = await self._call("retry", entry_id)
        return [event_from_entry(self.stream.name, entry)] if entry else []

    async def acknowledge(self, entry_ids: Iterable[str]) -> None:
        """Tell that events are handled. It goes on if the caller is cancelled."""
        ack = self._functions.valkey.call("XACK", self.stream.key, self.group, *entry_ids)
        await asyncio.shield(asyncio.ensure_future(ack))

    async def touch(self, entry_ids: Iterable[str]) -> None:
        """Keep events in progress from being claimed by others."""
        await self._call("touch", *entry_ids)

    async def release(self) -> None:
        """Let others claim all unhandled events at once; the tries in progress do not count."""
        await self._call("release", self._stale_ms)

    async def dead_letter(self, event: Event, reason: str) -> bool:
        """Move an event to the dead events. Returns False if another member has taken it over."""
        keys, args = [self.stream.key, self.stream.dead_key], (event.entry_id, reason, MAX_DEAD_EVENTS)
        return bool(await self._functions.run("events_dead_letter", keys, *self._group_and_name, *args))

    async def _call(self, command: str, *args: Any) -> Any:
        return await self._functions.run(f"events_{command}", [self.stream.key], *self._group_and_name, *args)
