"""Heartbeats, leaving and declarations.

On one server each is one Lua function and one round trip. On a cluster the session's keys may be on another node. Then
the event's part runs first, because it can refuse, and the session's part follows. `heartbeat_batches.py` sends
heartbeats that arrive together in one call.
"""

from __future__ import annotations

from collections.abc import Sequence

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.creation_limits import CreationLimits
from plaza.live.heartbeat_batches import HeartbeatBatches
from plaza.live.model import (
    DECLARED_FIELDS,
    MAX_SESSIONS,
    NEW_EVENT,
    NEW_VIEWING,
    EventDeclaration,
    Heartbeat,
    HeartbeatResult,
    LeaveRequest,
    LeaveResult,
    LiveEvent,
    TooManyEvents,
    TooManyPlaces,
    Viewer,
    effective_groups,
)
from plaza.live.other_services import to_ms
from plaza.live.player_reports import PlayerReports
from plaza.live.session_claims import SessionClaims

MAX_PLACES_PER_CALL = 50
# If all have the group, a call takes Valkey 0.4 ms.
VIEWERS_PER_CALL = 100


class LiveService:
    """Writes heartbeats and declarations."""

    def __init__(
        self,
        functions: Functions,
        settings: Settings,
        clock: Clock,
        *,
        origin: str = "",
        reports: PlayerReports | None = None,
    ) -> None:
        self._functions = functions
        self._reports = reports
        self._valkey = functions.valkey
        self._clock = clock
        self._origin = origin  # of the events: `import` if the demo is the source
        self._window_ms = settings.live_alive_seconds * 1000
        self._claims = SessionClaims(functions)
        self.batches = HeartbeatBatches(functions, self._claims, settings, clock, origin)
        self._limits = CreationLimits(settings, clock)

    async def beat(self, viewer: Viewer, event: str, beat: Heartbeat) -> HeartbeatResult:
        """Write a heartbeat. One round trip; on a cluster two with a session, three if the session is new here."""
        session, location = beat.session_id or "", beat.location
        groups, from_token = effective_groups(viewer, beat.groups)
        known = self.batches.is_known(event, session, location)
        texts = (event, session, location, *groups)
        sent = (
            viewer.name,
            viewer.address,
            viewer.country,
            "#".join(groups),
            "1" if from_token else "0",
            "" if known else self._limits.event_refusal(viewer.client, texts),
            "" if known else self._limits.place_refusal(viewer.client),
        )
        try:
            result, created = await self.batches.send(event, session, location, sent)
        except TooManyEvents:
            await self._count_events()  # events may have been purged
            raise
        if new := created & ~NEW_VIEWING:
            self._limits.count(viewer.client, new)
        if new == NEW_EVENT:
            await self._count_events()
        if self._reports is not None and (beat.quality or beat.device or beat.referrer):
            await self._reports.count(event, viewer.country, beat, starts=bool(created & NEW_VIEWING))
        return result

    async def _count_events(self) -> None:
        self._limits.event_count = await self._valkey.call("ZCARD", keys.LIVE_EVENTS())

    async def leave(self, viewer: Viewer, event: str, request: LeaveRequest) -> LeaveResult:
        """End a viewing session now. One round trip; on a cluster two with a session."""
        session, now = request.session_id or "", self._clock.now_ms()
        place_keys = self.batches.place_keys(event, session, request.location)
        args = (event, session, request.location, viewer.name, now, self._window_ms, self._origin)
        ended, left_session = await self._functions.run("live_leave", place_keys, *args)
        if left_session and self._valkey.clustered:
            audience = keys.session_audience(session)
            await self._functions.run("live_session_leave", audience, viewer.name, now, self._window_ms)
        return LeaveResult(ended=bool(ended))

    async def declare(self, event: str, declaration: EventDeclaration) -> LiveEvent:
        """Declare an event, or change its title, time and description and add sessions and groups. Up to six trips.

        It takes sessions from undeclared events, and makes room for its sessions by deleting undeclared ones.
        """
        sessions = list(dict.fromkeys(declaration.sessions))
        await self._take_over(event, sessions)
        try:
            await self._declare(event, declaration, sessions)
        except TooManyPlaces:
            if not await self._delete_undeclared_sessions(event, sessions):
                raise
            await self._declare(event, declaration, sessions)
        if declaration.groups:
            await self._functions.run("live_declare_groups", keys.event_audience(event), *declaration.groups)
        return await self.get_event(event)

    async def _declare(self, event: str, declaration: EventDeclaration, sessions: Sequence[str]) -> None:
        names = [keys.EVENT_INFO(event), keys.EVENT_SESSIONS(event)]
        given = (getattr(declaration, field) for field in DECLARED_FIELDS)
        fields = ("" if value is None else f"={value}" for value in given)
        if not self._valkey.clustered:
            names += map(keys.SESSION_INFO, sessions)
        async with self._claims.claimed(event, sessions if self._valkey.clustered else ()):
            now = self._clock.now_ms()
            await self._functions.run("live_declare", names, event, now, self._origin, *fields, *sessions)
        if self._valkey.clustered:
            await self._valkey.batch([("HSET", keys.SESSION_INFO(session), "declared", 1) for session in sessions])

    async def _take_over(self, event: str, sessions: Sequence[str]) -> None:
        """Remove sessions from other events that are not declared. Their audiences start again."""
        if not sessions:
            return
        owners = await self._valkey.batch([("HGET", keys.SESSION_INFO(session), "event") for session in sessions])
        taken = [
            (session, owner) for session, owner in zip(sessions, owners, strict=True) if owner not in (None, event)
        ]
        for session, owner in taken:
            if not await self._valkey.call("HEXISTS", keys.EVENT_INFO(owner), "declared"):
                await self.delete_session(owner, session)

    async def _delete_undeclared_sessions(self, event: str, sessions: Sequence[str]) -> int:
        """Delete as many undeclared sessions as these sessions need. Returns how many."""
        known = sorted(await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)))
        flags = await self._valkey.batch([("HGET", keys.SESSION_INFO(session), "declared") for session in known])
        undeclared = [s for s, flag in zip(known, flags, strict=True) if not flag and s not in sessions]
        surplus = len({*known, *sessions}) - MAX_SESSIONS
        for session in undeclared[:surplus]:
            await self.delete_session(event, session)
        return min(surplus, len(undeclared))

    async def delete_session(self, event: str, session: str) -> bool:
        """Delete a session with its audience and places. Returns False if it is not one of the event."""
        names = keys.event_keys(event)
        places = [p for p in await self._valkey.call("HKEYS", keys.EVENT_ROOMS(event)) if p.startswith(f"{session}#")]
        for batch in chunks(places, MAX_PLACES_PER_CALL):
            await self._functions.run("live_delete_places", names, event, *batch)
        deleted = await self._functions.run("live_delete_session", keys.session_audience(session), event)
        listed = await self._valkey.call("SREM", keys.EVENT_SESSIONS(event), session)
        self._claims.forget(session)
        return bool(deleted or listed)

    async def delete_group(self, event: str, group: str) -> bool:
        """Delete a group of an event and its sessions. Returns False if the event does not have it."""
        sessions = await self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event))
        found = False
        for audience in (keys.event_audience(event), *map(keys.session_audience, sessions)):
            for command in ("live_delete_group", "live_delete_group_in_statistics"):
                cursor = ""
                while cursor != "0":
                    removed, cursor = await self._functions.run(
                        command, audience, group, cursor or "0", VIEWERS_PER_CALL
                    )
                    found = found or bool(removed)
        return found

    async def get_event(self, event: str) -> LiveEvent:
        """Return an event. One round trip."""
        (declared, title, starts_at, description), sessions = await self._valkey.batch(
            [("HMGET", keys.EVENT_INFO(event), "declared", *DECLARED_FIELDS), ("SMEMBERS", keys.EVENT_SESSIONS(event))]
        )
        return LiveEvent(
            event, title, declared is not None, sorted(sessions), to_ms(starts_at) or None, description or None
        )
