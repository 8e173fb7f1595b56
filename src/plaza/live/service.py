"""Heartbeats, leaving and declarations.

On one server each is one Lua function and one round trip. On a cluster the session's keys may be on another node. Then
the event's part runs first, because it can refuse, and the session's part follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.model import (
    EventDeclaration,
    EventUndeclared,
    Heartbeat,
    HeartbeatPace,
    HeartbeatResult,
    LeaveRequest,
    LeaveResult,
    LiveEvent,
    SessionOfAnotherEvent,
    TooManyPlaces,
    Viewer,
    effective_groups,
)

# Every heartbeat needs the names of its keys. The names of this many places are cached.
MAX_CACHED_PLACES = 4096


class LiveService:
    """Writes heartbeats and declarations."""

    def __init__(self, functions: Functions, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000
        self._only_declared = "0" if settings.live_open else "1"
        self.pace = HeartbeatPace(settings.live_beats_per_second)
        self._keys: dict[tuple[str, str, str], list[str]] = {}
        # On a cluster: sessions and their events, so that each is claimed once per process.
        self._owners: dict[str, str] = {}

    async def beat(self, viewer: Viewer, event: str, beat: Heartbeat) -> HeartbeatResult:
        """Write a heartbeat. One round trip; on a cluster two with a session, three if the session is new here."""
        session = beat.session_id or ""
        groups, from_token = effective_groups(viewer, beat.groups)
        now, interval = self._clock.now_ms(), self.pace.interval_ms
        args = (
            event,
            session,
            beat.location,
            viewer.name,
            now,
            viewer.address,
            viewer.country,
            "#".join(groups),
            "1" if from_token else "0",
            interval,
            self._window_ms,
            self._only_declared,
        )
        names = self._place_keys(event, session, beat.location)
        if session and self._valkey.clustered:
            async with self._claimed(event, [session]):
                alive, _ = await self._functions.run("live_beat", names, *args)
            session_alive = await self._functions.run("live_session_beat", keys.session_audience(session), *args)
        else:
            alive, session_alive = await self._functions.run("live_beat", names, *args)
        self.pace.update(event, alive, now)
        return HeartbeatResult(
            alive=alive, session_alive=session_alive if session else None, next_heartbeat_ms=interval
        )

    async def leave(self, viewer: Viewer, event: str, request: LeaveRequest) -> LeaveResult:
        """End a viewing session now. One round trip; on a cluster two with a session."""
        session, now = request.session_id or "", self._clock.now_ms()
        place_keys = self._place_keys(event, session, request.location)
        ended, left_session = await self._functions.run(
            "live_leave", place_keys, event, session, request.location, viewer.name, now, self._window_ms
        )
        if left_session and self._valkey.clustered:
            audience = keys.session_audience(session)
            await self._functions.run("live_session_leave", audience, viewer.name, now, self._window_ms)
        return LeaveResult(ended=bool(ended))

    async def declare(self, event: str, declaration: EventDeclaration) -> LiveEvent:
        """Declare an event, or add a title or sessions to it. One round trip; on a cluster three."""
        sessions = list(dict.fromkeys(declaration.sessions))
        names = [keys.EVENT_INFO(event), keys.EVENT_SESSIONS(event)]
        title = "" if declaration.title is None else f"={declaration.title}"
        if not self._valkey.clustered:
            names += map(keys.SESSION_INFO, sessions)
        async with self._claimed(event, sessions if self._valkey.clustered else ()):
            new_title, all_sessions = await self._functions.run(
                "live_declare", names, event, self._clock.now_ms(), title, *sessions
            )
        return LiveEvent(id=event, title=new_title, declared=True, sessions=sorted(all_sessions))

    async def get_event(self, event: str) -> LiveEvent:
        """Return an event. One round trip."""
        (title, declared), sessions = await self._valkey.batch(
            [("HMGET", keys.EVENT_INFO(event), "title", "declared"), ("SMEMBERS", keys.EVENT_SESSIONS(event))]
        )
        return LiveEvent(id=event, title=title, declared=declared is not None, sessions=sorted(sessions))

    def _place_keys(self, event: str, session: str, location: str) -> list[str]:
        """Return the keys of `live_beat` and `live_leave`: the event's, on one server also the session's."""
        names = self._keys.get((event, session, location))
        if names is None:
            names = keys.event_keys(event) + keys.viewing_keys(event, session, location)
            if session and not self._valkey.clustered:
                names += keys.session_audience(session)
            if len(self._keys) >= MAX_CACHED_PLACES:
                self._keys.clear()
            self._keys[event, session, location] = names
        return names

    @asynccontextmanager
    async def _claimed(self, event: str, sessions: Sequence[str]) -> AsyncIterator[None]:
        """Claim sessions for an event, on a cluster. If the operation is refused, the new claims are undone.

        Claiming comes first. If the owner were only read first, two events could get the same new session.
        """
        unknown = [session for session in sessions if self._owners.get(session) != event]
        claims = await asyncio.gather(*(self._claim(session, event) for session in unknown), return_exceptions=True)
        newly_claimed = [session for session, new in zip(unknown, claims, strict=True) if new is True]
        try:
            for failed in (claim for claim in claims if isinstance(claim, BaseException)):
                raise failed
            yield
        except (EventUndeclared, SessionOfAnotherEvent, TooManyPlaces):
            infos = [keys.SESSION_INFO(session) for session in newly_claimed]
            await asyncio.gather(*(self._functions.run("live_unclaim", [info], event) for info in infos))
            raise
        if len(self._owners) + len(unknown) > MAX_CACHED_PLACES:
            self._owners.clear()
        self._owners.update(dict.fromkeys(unknown, event))

    async def _claim(self, session: str, event: str) -> bool:
        """Claim a session. Returns whether it had no event before."""
        return bool(await self._functions.run("live_claim", [keys.SESSION_INFO(session)], event))
