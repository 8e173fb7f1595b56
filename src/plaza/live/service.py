"""The verbs of an audience: beat, leave, declare.

On one server each is one function, one round trip. On a cluster the session's keys may live on another node than the
event's; the event's part runs first, for it is the one that can refuse, and the session's right after it.
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

# Names of an event's keys are asked for at every beat; those of the last few thousand places are kept.
REMEMBERED = 4096


class LiveService:
    """What viewers do, and what admins declare."""

    def __init__(self, functions: Functions, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000
        self._only_declared = "0" if settings.live_open else "1"
        self.pace = HeartbeatPace(settings.live_beats_per_second)
        self._keys: dict[tuple[str, str, str], list[str]] = {}
        # On a cluster: sessions known to belong to an event, so that it is asked once.
        self._owners: dict[str, str] = {}

    async def beat(self, watcher: Viewer, event: str, beat: Heartbeat) -> HeartbeatResult:
        """A viewer is there. One round trip; on a cluster two with a session, and one more if it is new here."""
        session = beat.session_id or ""
        groups, given = effective_groups(watcher, beat.groups)
        now, interval = self._clock.now_ms(), self.pace.interval_ms
        args = (
            event,
            session,
            beat.location,
            watcher.name,
            now,
            watcher.address,
            watcher.country,
            "#".join(groups),
            "1" if given else "0",
            interval,
            self._window_ms,
            self._only_declared,
        )
        names = self._place_keys(event, session, beat.location)
        if session and self._valkey.clustered:
            async with self._claimed(event, [session]):
                alive, _ = await self._functions.run("live_beat", names, *args)
            there = await self._functions.run("live_session_beat", keys.session_audience(session), *args)
        else:
            alive, there = await self._functions.run("live_beat", names, *args)
        self.pace.heard(event, alive, now)
        return HeartbeatResult(alive=alive, session_alive=there if session else None, next_heartbeat_ms=interval)

    async def leave(self, watcher: Viewer, event: str, leaving: LeaveRequest) -> LeaveResult:
        """A viewing session ends now. One round trip; on a cluster two with a session."""
        session, now = leaving.session_id or "", self._clock.now_ms()
        place_keys = self._place_keys(event, session, leaving.location)
        ended, gone = await self._functions.run(
            "live_leave", place_keys, event, session, leaving.location, watcher.name, now, self._window_ms
        )
        if gone and self._valkey.clustered:
            audience = keys.session_audience(session)
            await self._functions.run("live_session_leave", audience, watcher.name, now, self._window_ms)
        return LeaveResult(ended=bool(ended))

    async def declare(self, event: str, declaration: EventDeclaration) -> LiveEvent:
        """Make an event known, or add to what is known of it. One round trip; on a cluster three."""
        sessions = list(dict.fromkeys(declaration.sessions))
        names = [keys.EVENT_INFO(event), keys.EVENT_SESSIONS(event)]
        title = "" if declaration.title is None else f"={declaration.title}"
        if not self._valkey.clustered:
            names += map(keys.SESSION_INFO, sessions)
        async with self._claimed(event, sessions if self._valkey.clustered else ()):
            said, all_sessions = await self._functions.run(
                "live_declare", names, event, self._clock.now_ms(), title, *sessions
            )
        return LiveEvent(id=event, title=said, declared=True, sessions=sorted(all_sessions))

    async def event(self, event: str) -> LiveEvent:
        """What is known of an event. One round trip."""
        (title, declared), sessions = await self._valkey.batch(
            [("HMGET", keys.EVENT_INFO(event), "title", "declared"), ("SMEMBERS", keys.EVENT_SESSIONS(event))]
        )
        return LiveEvent(id=event, title=title, declared=declared is not None, sessions=sorted(sessions))

    def _place_keys(self, event: str, session: str, location: str) -> list[str]:
        """What `live_beat` and `live_leave` take: the event's keys, on one server also the session's."""
        names = self._keys.get((event, session, location))
        if names is None:
            names = keys.event_keys(event) + keys.viewing_keys(event, session, location)
            if session and not self._valkey.clustered:
                names += keys.session_audience(session)
            if len(self._keys) >= REMEMBERED:
                self._keys.clear()
            self._keys[event, session, location] = names
        return names

    @asynccontextmanager
    async def _claimed(self, event: str, sessions: Sequence[str]) -> AsyncIterator[None]:
        """On a cluster: these sessions are the event's, or nothing is done. If it is refused, they are as before.

        To look first and claim later would let two events have a session that both name for the first time.
        """
        unknown = [session for session in sessions if self._owners.get(session) != event]
        claims = await asyncio.gather(*(self._claim(session, event) for session in unknown), return_exceptions=True)
        fresh = [session for session, new in zip(unknown, claims, strict=True) if new is True]
        try:
            for failed in (claim for claim in claims if isinstance(claim, BaseException)):
                raise failed
            yield
        except (EventUndeclared, SessionOfAnotherEvent, TooManyPlaces):
            infos = [keys.SESSION_INFO(session) for session in fresh]
            await asyncio.gather(*(self._functions.run("live_unclaim", [info], event) for info in infos))
            raise
        if len(self._owners) + len(unknown) > REMEMBERED:
            self._owners.clear()
        self._owners.update(dict.fromkeys(unknown, event))

    async def _claim(self, session: str, event: str) -> bool:
        """Whether the session is the event's only from now on."""
        return bool(await self._functions.run("live_claim", [keys.SESSION_INFO(session)], event))
