"""Takes what audiences did to SQL, and raw keys away when they have been silent long enough.

A beat puts its event on a list (`live:awake`), and only this takes it off, when the event is silent and nothing of it
is left to write. Each piece is written to SQL first and removed from Valkey after: a worker that is killed in between
has written something twice, which is the same as once, and one that was away for a week finds everything where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory
from plaza.live.model import EventNotSilent
from plaza.live.statistics import CurrentAudience
from plaza.live.viewing_sessions import ViewingSessions, finished_member

BATCH = 500
# Calls under way at once for one event.
TOGETHER = 50
DAY_MS = 86_400_000


class AudienceRecorder:
    """The worker's side of `live`."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._viewings = ViewingSessions(functions, history, settings, clock)
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000
        self._retention_ms = settings.live_retention_days * DAY_MS

    async def record(self) -> int:
        """Write what is to be written of every event that is awake. Returns how many there were."""
        awake = await self._valkey.call("ZRANGE", keys.LIVE_AWAKE(), 0, -1, "WITHSCORES", raw=True)
        for name, woke in zip(awake[::2], awake[1::2], strict=True):
            await self.record_event(name.decode(), woke.decode())
        return len(awake) // 2

    async def record_event(self, event: str, woke: str) -> None:
        now = self._clock.now_ms()
        await self._valkey.call("ZADD", keys.LIVE_EVENTS(), "GT", now, event)
        sessions: list[str] = sorted(await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)))
        for first in range(0, len(sessions), TOGETHER):
            await asyncio.gather(
                *(self._close(keys.session_audience(s), now) for s in sessions[first : first + TOGETHER])
            )
        await self._close(keys.event_audience(event), now)
        for room in await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event)):
            await self._sweep(event, room, now)
        await self._write_viewings(event)
        await self._write_records(event, sessions)
        await self._write_totals(event, sessions, now)
        if await self._functions.run("live_rest", keys.event_keys(event), now):
            await self._functions.run("live_unlist", [keys.LIVE_AWAKE()], event, woke)

    async def _close(self, audience: list[str], now: int) -> None:
        await self._functions.run("live_close", audience, now, self._window_ms)

    async def _sweep(self, event: str, room: str, now: int) -> None:
        names = keys.event_keys(event) + keys.viewing_keys(event, *keys.of_place(room))
        looked = BATCH
        while looked == BATCH:
            looked = await self._functions.run("live_sweep", names, room, now, self._window_ms, BATCH)

    async def _write_viewings(self, event: str) -> None:
        while await self._viewings.finished(event, 0, 1):
            found = await self._history.keep_viewings(event, lambda: self._viewings.finished(event, 0, BATCH))
            if found:
                await self._valkey.call("ZREM", keys.EVENT_FINISHED(event), *map(finished_member, found))

    async def _write_records(self, event: str, sessions: Sequence[str]) -> None:
        scopes = [("", keys.EVENT_RECORDS(event)), *((s, keys.SESSION_RECORDS(s)) for s in sessions)]
        for session, name in scopes:
            records = await self._valkey.call("HGETALL", name)
            if records:
                await self._history.keep_records(event, session, records)
                flat = [part for pair in records.items() for part in pair]
                await self._functions.run("live_written", [name], *flat)

    async def _write_totals(self, event: str, sessions: Sequence[str], now: int) -> None:
        totals = []
        for session in ("", *sessions):
            audience = keys.session_audience(session) if session else keys.event_audience(event)
            totals.append((session, (await CurrentAudience.of(self._functions, audience, now, self._window_ms)).totals))
        await self._history.keep_totals(event, totals)

    async def purge(self) -> int:
        """Remove the raw keys of events that have been silent for the set time. Returns how many events."""
        before = self._clock.now_ms() - self._retention_ms
        silent = await self._valkey.call("ZRANGEBYSCORE", keys.LIVE_EVENTS(), "-inf", f"({before}")
        return sum([await self._purge_event(event, before) for event in silent])

    async def _purge_event(self, event: str, before: int) -> bool:
        if await self._valkey.call("ZSCORE", keys.LIVE_AWAKE(), event) is not None:
            return False  # not everything is in SQL yet
        declared, awake = await self._valkey.call("HMGET", keys.EVENT_INFO(event), "declared", "awake")
        if awake:
            # Whoever woke it died before it was listed: a simulation that was killed.
            await self._valkey.call("ZADD", keys.LIVE_AWAKE(), "GT", self._clock.now_ms(), event)
            return False
        sessions = await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event))
        keep = "1" if declared else "0"
        try:
            await self._purge_rooms(event, before)
            for session in sessions:
                await self._functions.run("live_retire", keys.session_audience(session), before, keep)
            names = keys.event_keys(event)
            if declared:
                names.remove(keys.EVENT_SESSIONS(event))
            await self._functions.run("live_retire", names, before, keep)
        except EventNotSilent:
            return False
        await self._valkey.call("ZREM", keys.LIVE_EVENTS(), event)
        return True

    async def _purge_rooms(self, event: str, before: int) -> None:
        rooms = await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event))
        names = keys.event_keys(event)
        for first in range(0, len(rooms), TOGETHER):
            await self._functions.run("live_retire_rooms", names, event, before, *rooms[first : first + TOGETHER])
