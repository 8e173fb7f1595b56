"""The worker's part of `live`: copies results to SQL and removes the raw keys of events that have long been silent.

A heartbeat lists its event in `live:awake`. The recorder removes it from the list when the event is silent and
everything is in SQL. Each piece is written to SQL first and removed from Valkey after. If the worker is killed in
between, the next one writes it again, which changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sequences import chunks, pairs
from plaza.core.settings import Settings
from plaza.core.valkey import Valkey, scan_pages
from plaza.live import keys
from plaza.live.current_audience import CurrentAudience
from plaza.live.history import AudienceHistory, ViewingSession
from plaza.live.model import EventNotSilent, SessionOfAnotherEvent
from plaza.live.other_services import HeartbeatFollower, count_unreadable, to_ms
from plaza.live.player_reports import save_reports
from plaza.live.viewing_sessions import ViewingSessions

BATCH_SIZE = 500
# Calls at the same time for one event.
CONCURRENT_CALLS = 50
DAY_MS = 86_400_000
# How long an event counts as written by another service after its last heartbeat.
OTHER_SERVICE_MS = 600_000

_VIEWING_STARTS = (keys.VIEWING_START, keys.SESSION_VIEWING_START)


class AudienceRecorder:
    """Records, discovers and purges audiences."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._viewing_sessions = ViewingSessions(functions, history, settings, clock)
        self._follower = HeartbeatFollower(functions, clock)
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000
        self._retention_ms = settings.live_retention_days * DAY_MS

    async def record(self) -> int:
        """Write the results of every listed event to SQL. Returns the number of events."""
        listed = await self._valkey.call("ZRANGE", keys.LIVE_AWAKE(), 0, -1, "WITHSCORES", raw=True)
        for name, listed_at in pairs(listed):
            await self.record_event(name.decode(), listed_at.decode())
        return len(listed) // 2

    async def record_event(self, event: str, listed_at: str) -> None:
        now = self._clock.now_ms()
        await self._valkey.batch(
            [("ZADD", keys.LIVE_EVENTS(), "GT", now, event), ("ZADD", keys.LIVE_DECLARED(), "XX", "GT", now, event)]
        )
        sessions: list[str] = sorted(await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)))
        for batch in chunks(sessions, CONCURRENT_CALLS):
            await asyncio.gather(*(self._close("session", keys.session_audience(s), now) for s in batch))
        await self._close("event", keys.event_audience(event), now, event)
        followed = to_ms(await self._valkey.call("HGET", keys.EVENT_INFO(event), "followed"))
        for place, position in (await self._valkey.call("HGETALL", keys.EVENT_ROOMS(event))).items():
            if followed is not None and now - followed < OTHER_SERVICE_MS:
                await self._open(event, place, now)
            await self._sweep(event, place, position, now)
        await self._save_viewing_sessions(event)
        await self._save_records(event, sessions)
        await save_reports(self._valkey, self._history.reports, event)
        await self._save_totals(event, sessions, now)
        if await self._functions.run("live_mark_silent", keys.event_keys(event), now, event):
            await self._functions.run("live_unlist", [keys.LIVE_AWAKE()], event, listed_at)

    async def _close(self, kind: str, audience: list[str], now: int, event: str = "") -> None:
        """Write a record that is due. If other services wrote heartbeats, they are counted first."""
        if not await self._functions.run("live_close", audience, kind, now, self._window_ms, "0", event):
            await self._follower.follow(kind, audience, now - self._window_ms, forced=True)
            await self._functions.run("live_close", audience, kind, now, self._window_ms, "1", event)

    async def _open(self, event: str, place: str, now: int) -> None:
        """Count the viewing sessions of other services that are under way at a place."""
        session, location = keys.split_place(place)
        names = keys.event_keys(event) + keys.viewing_keys(event, session, location)
        position = ""
        while True:
            position, *flat = await self._functions.query(
                "live_under_way_page", names, place, position, BATCH_SIZE, now, self._window_ms
            )
            found = [(viewer, int(start)) for viewer, start in pairs(flat)]
            viewers = [viewer for viewer, _ in found]
            recorded = (
                await self._history.viewings.find_recorded(event, session, location, viewers) if viewers else set()
            )
            new = [part for pair in found if pair not in recorded for part in pair]
            if new:
                await self._functions.run("live_open", names, event, place, *new)
            if not position:
                return

    async def _sweep(self, event: str, place: str, position: str, now: int) -> None:
        """Collect the viewing sessions at a place that have ended since the last time."""
        session, location = keys.split_place(place)
        names = keys.event_keys(event) + keys.viewing_keys(event, session, location)
        read = BATCH_SIZE
        while read == BATCH_SIZE:
            read, position, unreadable, *flat = await self._functions.run(
                "live_sweep", names, place, position, now, self._window_ms, BATCH_SIZE, event
            )
            count_unreadable("viewing session", unreadable, audience=event, place=place)
            rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
            found = [ViewingSession(session, location, viewer, int(start), int(end)) for viewer, start, end in rows]
            await self._adopt(event, place, found)
            if read:
                await self._functions.run("live_save_sweep_position", [keys.EVENT_ROOMS(event)], place, position)

    async def _adopt(self, event: str, place: str, viewings: Sequence[ViewingSession]) -> None:
        """Collect the viewing sessions that other services wrote: those that are not in SQL."""
        session, location = keys.split_place(place)
        for batch in chunks(viewings, BATCH_SIZE):
            viewers = [viewing.viewer for viewing in batch]
            recorded = await self._history.viewings.find_recorded(event, session, location, viewers)
            new = [each for each in batch if (each.viewer, each.started_at) not in recorded]
            if new:
                flat = [value for each in new for value in (each.viewer, each.started_at, each.ended_at)]
                await self._functions.run("live_finish_external", keys.event_keys(event), event, place, *flat)

    async def _save_viewing_sessions(self, event: str) -> None:
        while await self._viewing_sessions.read_finished(event, 0, 1):
            members: list[str] = []

            async def read(members: list[str] = members) -> list[ViewingSession]:
                found = await self._viewing_sessions.read_finished(event, 0, BATCH_SIZE)
                members[:] = [each.member for each in found]
                return [each.viewing for each in found if each.viewing is not None]

            await self._history.viewings.save(event, read)
            if members:
                await self._valkey.call("ZREM", keys.EVENT_FINISHED(event), *members)

    async def _save_records(self, event: str, sessions: Sequence[str]) -> None:
        scopes = [("", keys.EVENT_RECORDS(event)), *((s, keys.SESSION_RECORDS(s)) for s in sessions)]
        for session, name in scopes:
            records = await self._valkey.call("HGETALL", name)
            if records:
                await self._history.save_records(event, session, records)
                flat = [part for pair in records.items() for part in pair]
                await self._functions.run("live_delete_written_records", [name], *flat)

    async def _save_totals(self, event: str, sessions: Sequence[str], now: int) -> None:
        totals = []
        for session in ("", *sessions):
            audience = keys.session_audience(session) if session else keys.event_audience(event)
            current = await CurrentAudience.read(self._functions, audience, now, self._window_ms)
            totals.append((session, current.totals))
        await self._history.save_totals(event, totals)

    async def discover(self) -> int:
        """List events and places that only other services have written. Returns how many were new.

        A location is part of a key's name, so a scan of all key names finds it. The scan is the cost.
        """
        new = 0
        for server in self._valkey.primaries():
            async for page in scan_pages(server, "SCAN", match="*#*", type="zset"):
                for name in page:
                    new += await self._discover_key(name)
        return new

    async def _discover_key(self, name: str) -> int:
        match = keys.CATALOGUE.match(name)
        if match is None:
            return 0
        event, now = match.parts[0], self._clock.now_ms()
        if match.key is keys.EVENT_HEARTBEAT:
            return int(await self._functions.run("live_wake", keys.event_keys(event), event, now))
        if match.key not in _VIEWING_STARTS:
            return 0
        session, location = match.parts[1:] if len(match.parts) == 3 else ("", match.parts[1])
        place = keys.join_place(session, location)
        if await self._valkey.call("HEXISTS", keys.EVENT_ROOMS(event), place):
            return 0
        if session:
            try:
                await self._functions.run("live_claim", [keys.SESSION_INFO(session)], event)
            except SessionOfAnotherEvent:
                return 0
        return int(await self._functions.run("live_add_place", keys.event_keys(event), event, now, place, session))

    async def purge(self) -> int:
        """Remove the raw keys of events that have been silent for the set time, and list the events no more.

        Returns the number of these events. Those that were declared are listed as long after their start.
        """
        now = self._clock.now_ms()
        await _list_declared(self._valkey, now)
        before = now - self._retention_ms
        silent = await self._valkey.call("ZRANGEBYSCORE", keys.LIVE_EVENTS(), "-inf", f"({before}")
        return sum([await self._purge_event(event, before) for event in silent])

    async def _purge_event(self, event: str, before: int) -> bool:
        if await self._valkey.call("ZSCORE", keys.LIVE_AWAKE(), event) is not None:
            return False  # not everything is in SQL yet
        declared, awake, starts_at = await self._valkey.call(
            "HMGET", keys.EVENT_INFO(event), "declared", "awake", "starts_at"
        )
        if awake:
            # The process that woke the event died before it was listed, as a killed simulation does.
            await self._valkey.call("ZADD", keys.LIVE_AWAKE(), "GT", self._clock.now_ms(), event)
            return False
        sessions = await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event))
        keep = "1" if declared else "0"
        try:
            await self._purge_places(event, before)
            for session in sessions:
                await self._functions.run("live_purge", keys.session_audience(session), before, keep)
            names = [*keys.event_keys(event), keys.EVENT_REPORTS(event)]
            if declared:
                names.remove(keys.EVENT_SESSIONS(event))
            await self._functions.run("live_purge", names, before, keep)
        except EventNotSilent:
            return False
        if declared and (to_ms(starts_at) or 0) >= before:
            return False  # it comes, or has just begun: it stays in the list
        await self._valkey.batch([("ZREM", key(), event) for key in (keys.LIVE_EVENTS, keys.LIVE_DECLARED)])
        return True

    async def _purge_places(self, event: str, before: int) -> None:
        places = await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event))
        for place in places:
            # Another service may have written viewing sessions with times that the sweep had passed already.
            others = [
                viewing async for viewing, is_open in self._viewing_sessions.iterate_place(event, place) if not is_open
            ]
            await self._adopt(event, place, others)
        await self._save_viewing_sessions(event)
        for batch in chunks(places, CONCURRENT_CALLS):
            await self._functions.run("live_purge_places", keys.event_keys(event), event, before, *batch)


async def _list_declared(valkey: Valkey, now: int) -> None:
    """List declared events that a failover has lost from the list, or that an earlier release declared."""
    for events in chunks(await valkey.call("ZRANGE", keys.LIVE_EVENTS(), 0, -1), BATCH_SIZE):
        fields = "declared", "starts_at"
        found = await valkey.batch([("HMGET", keys.EVENT_INFO(event), *fields) for event in events])
        for event, (declared, starts_at) in zip(events, found, strict=True):
            if declared:
                await valkey.call("ZADD", keys.LIVE_DECLARED(), "NX", to_ms(starts_at) or now, event)
