"""What `live` holds about one person: to show it to them, and to forget it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plaza.core.functions import Functions
from plaza.live import keys
from plaza.live.history import AudienceHistory
from plaza.live.viewing_sessions import ViewingSessions, finished_member

# Events asked about, or places emptied, in one round trip.
BATCH = 200


class LivePersonalData:
    """Traces of a person in all audiences. No address leaves it."""

    def __init__(self, functions: Functions, history: AudienceHistory, viewings: ViewingSessions) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._viewings = viewings

    async def export(self, username: str) -> dict[str, Any]:
        """Every viewing session, and where the person was last seen of what is not in SQL yet."""
        known = [
            {
                "event": event,
                "session": viewing.session or None,
                "location": viewing.location,
                "joined": viewing.started_at,
                "left": viewing.ended_at,
            }
            for event, viewing in await self._history.of_viewer(username)
        ]
        events = await self._events_with(username)
        names = [name for event in events for name in (keys.EVENT_LEFT(event), keys.EVENT_HEARTBEAT(event))]
        seen = await self._valkey.batch([("ZSCORE", name, username) for name in names])
        # Who has left has the true time there, and a lowered one among the heartbeats.
        last = [left or beat for left, beat in zip(seen[::2], seen[1::2], strict=True)]
        recent = [{"event": event, "last_seen": int(at)} for event, at in zip(events, last, strict=True) if at]
        return {"viewing_sessions": known, "recent_events": recent}

    async def delete(self, username: str) -> None:
        """Remove the person everywhere, event by event; what was interrupted goes on when it is called again."""
        for event in await self._events_with(username):
            await self._forget_in(event, username)
        await self._history.forget(username)

    async def rename(self, old: str, new: str) -> None:
        """Move the person's traces to another name, event by event; interrupted, it goes on when called again."""
        for event in await self._events_with(old):
            await self._rename_in(event, old, new)
        await self._history.rename(old, new)

    async def _rename_in(self, event: str, old: str, new: str) -> None:
        for room in await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event)):
            names = keys.viewing_keys(event, *keys.of_place(room))
            await self._functions.run("live_rename_room", names, old, new)
        await self._rename_finished(event, old, new)
        for session in await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)):
            await self._functions.run("live_rename", keys.session_audience(session), old, new)
        await self._functions.run("live_rename", keys.event_audience(event), old, new)

    async def _rename_finished(self, event: str, old: str, new: str) -> None:
        name, first = keys.EVENT_FINISHED(event), 0
        while found := await self._viewings.finished(event, first, BATCH):
            for viewing in (viewing for viewing in found if viewing.viewer == old):
                renamed = finished_member(replace(viewing, viewer=new))
                await self._valkey.multi(
                    [("ZADD", name, "GT", viewing.ended_at, renamed), ("ZREM", name, finished_member(viewing))]
                )
            first += len(found)

    async def _forget_in(self, event: str, username: str) -> None:
        rooms = await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event))
        names = [name for room in rooms for name in keys.viewing_keys(event, *keys.of_place(room))]
        for first in range(0, len(names), BATCH):
            await self._valkey.batch([("ZREM", name, username) for name in names[first : first + BATCH]])
        await self._forget_finished(event, username)
        for session in await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)):
            await self._functions.run("live_forget", keys.session_audience(session), username)
        # Last, for it is by this that the person's events are found.
        await self._functions.run("live_forget", keys.event_audience(event), username)

    async def _forget_finished(self, event: str, username: str) -> None:
        first = 0
        while found := await self._viewings.finished(event, first, BATCH):
            theirs = [finished_member(viewing) for viewing in found if viewing.viewer == username]
            if theirs:
                await self._valkey.call("ZREM", keys.EVENT_FINISHED(event), *theirs)
            first += len(found) - len(theirs)

    async def _events_with(self, username: str) -> list[str]:
        """Events whose raw keys name the person."""
        events = await self._valkey.call("ZRANGE", keys.LIVE_EVENTS(), 0, -1)
        events = list(dict.fromkeys([*events, *await self._valkey.call("ZRANGE", keys.LIVE_AWAKE(), 0, -1)]))
        found = []
        for first in range(0, len(events), BATCH):
            batch = events[first : first + BATCH]
            there = await self._valkey.batch([("HEXISTS", keys.EVENT_VIEWERS(event), username) for event in batch])
            found += [event for event, yes in zip(batch, there, strict=True) if yes]
        return found
