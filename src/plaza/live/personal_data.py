"""The personal data of `live`: export, delete and rename a user in all audiences."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.valkey import scan_pages
from plaza.live import keys
from plaza.live.history import AudienceHistory
from plaza.live.model import SCORE_SHIFT
from plaza.live.other_services import to_ms
from plaza.live.viewing_sessions import ViewingSessions, finished_member

# Events or places per round trip.
BATCH_SIZE = 200

_GLOB_SPECIAL = str.maketrans({char: f"\\{char}" for char in "*?[]^-\\"})


class LivePersonalData:
    """Exports, deletes and renames a user's data. Exports contain no address."""

    def __init__(self, functions: Functions, history: AudienceHistory, viewing_sessions: ViewingSessions) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._viewing_sessions = viewing_sessions

    async def export(self, username: str) -> dict[str, Any]:
        """Return every viewing session in SQL, and what events that still have raw keys say about the user."""
        recorded = [
            {
                "event": event,
                "session": viewing.session or None,
                "location": viewing.location,
                "joined": viewing.started_at,
                "left": viewing.ended_at,
            }
            for event, viewing in await self._history.viewings.list_for_viewer(username)
        ]
        events = await self._events_with(username)
        names = [name for event in events for name in (keys.EVENT_LEFT(event), keys.EVENT_HEARTBEAT(event))]
        scores = await self._valkey.batch([("ZSCORE", name, username) for name in names])
        # Leaving lowers the heartbeat; the real time is in the other key.
        last_seen = [_last_seen(left, beat) for left, beat in zip(scores[::2], scores[1::2], strict=True)]
        recent = [
            {"event": event, "last_seen": at, **await self._export_audience(event, username)}
            for event, at in zip(events, last_seen, strict=True)
            if at
        ]
        return {"viewing_sessions": recorded, "recent_events": recent}

    async def _export_audience(self, event: str, username: str) -> dict[str, Any]:
        """Return where the user has watched an event, and the country and groups it was counted for."""
        watched = []
        for places in chunks(await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event)), BATCH_SIZE):
            ids = [keys.split_place(place) for place in places]
            names = [name for session, location in ids for name in keys.viewing_keys(event, session, location)]
            scores = await self._valkey.batch([("ZSCORE", name, username) for name in names])
            watched += [
                {"session": session or None, "location": location, "joined": to_ms(start), "last_heartbeat": to_ms(end)}
                for (session, location), start, end in zip(ids, scores[::2], scores[1::2], strict=True)
                if start is not None
            ]
        entry = await self._valkey.call("HGET", keys.EVENT_VIEWERS(event), username) or ""
        country, *groups = entry.partition("\n")[0][1:].split("#")  # after the sign that says whether it counts now
        return {"country": country or None, "groups": groups, "places": watched}

    async def delete(self, username: str) -> None:
        """Delete a user everywhere, event by event. After an interruption, call it again."""
        for event in await self._events_with(username):
            await self._delete_in(event, username)
        await self._history.viewings.delete_viewer(username)

    async def rename(self, old: str, new: str) -> None:
        """Rename a user everywhere, event by event. After an interruption, call it again."""
        for event in await self._events_with(old):
            await self._rename_in(event, old, new)
        await self._history.viewings.rename_viewer(old, new)

    async def _rename_in(self, event: str, old: str, new: str) -> None:
        for place in await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event)):
            names = keys.viewing_keys(event, *keys.split_place(place))
            await self._functions.run("live_rename_place", names, old, new)
        await self._rename_finished(event, old, new)
        for session in await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)):
            await self._rename_audience("session", keys.session_audience(session), old, new)
        # Last, because the user's events are found by the event's keys.
        await self._rename_audience("event", keys.event_audience(event), old, new)

    async def _rename_audience(self, kind: str, audience: list[str], old: str, new: str) -> None:
        members = await self._statistics_members(audience[1], old)
        await self._functions.run("live_rename", audience, kind, old, new, *members)

    async def _rename_finished(self, event: str, old: str, new: str) -> None:
        name, first = keys.EVENT_FINISHED(event), 0
        while found := await self._viewing_sessions.read_finished(event, first, BATCH_SIZE):
            for finished in found:
                viewing = finished.viewing
                if viewing is not None and viewing.viewer == old:
                    renamed = finished_member(replace(viewing, viewer=new))
                    await self._valkey.multi(
                        [("ZADD", name, "GT", viewing.ended_at, renamed), ("ZREM", name, finished.member)]
                    )
            first += len(found)

    async def _delete_in(self, event: str, username: str) -> None:
        places = await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event))
        names = [name for place in places for name in keys.viewing_keys(event, *keys.split_place(place))]
        for batch in chunks(names, BATCH_SIZE):
            await self._valkey.batch([("ZREM", name, username) for name in batch])
        await self._delete_finished(event, username)
        for session in await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)):
            await self._delete_in_audience(keys.session_audience(session), username)
        # Last, because the user's events are found by the event's keys.
        await self._delete_in_audience(keys.event_audience(event), username)

    async def _delete_in_audience(self, audience: list[str], username: str) -> None:
        members = await self._statistics_members(audience[1], username)
        await self._functions.run("live_delete_viewer", audience, username, *members)

    async def _delete_finished(self, event: str, username: str) -> None:
        first = 0
        while found := await self._viewing_sessions.read_finished(event, first, BATCH_SIZE):
            members = [each.member for each in found if each.member.partition("#")[0] == username]
            if members:
                await self._valkey.call("ZREM", keys.EVENT_FINISHED(event), *members)
            first += len(found) - len(members)

    async def _statistics_members(self, name: str, username: str) -> list[str]:
        """Return all statistics members of a user. Other services may have written several."""
        pattern = username.translate(_GLOB_SPECIAL) + "#*"
        return [member async for page in scan_pages(self._valkey, "ZSCAN", name, match=pattern) for member in page[::2]]

    async def _events_with(self, username: str) -> list[str]:
        """Return the events whose raw keys contain the user."""
        events = await self._valkey.call("ZRANGE", keys.LIVE_EVENTS(), 0, -1)
        events = list(dict.fromkeys([*events, *await self._valkey.call("ZRANGE", keys.LIVE_AWAKE(), 0, -1)]))
        found = []
        for batch in chunks(events, BATCH_SIZE):
            commands = [
                command
                for event in batch
                for command in (
                    ("HEXISTS", keys.EVENT_VIEWERS(event), username),
                    ("SISMEMBER", keys.EVENT_ATTENDED(event), username),
                    ("ZSCORE", keys.EVENT_HEARTBEAT(event), username),
                )
            ]
            replies = await self._valkey.batch(commands)
            for i, event in enumerate(batch):
                counted, attended, beat = replies[3 * i : 3 * i + 3]
                if counted or attended or beat is not None:
                    found.append(event)
        return found


def _last_seen(left: Any, beat: Any) -> int | None:
    """Return the later of leaving and the last heartbeat."""
    left_ms = None if left is None else to_ms(float(left) % SCORE_SHIFT)
    times = [at for at in (left_ms, to_ms(beat)) if at is not None]
    return max(times, default=None)
