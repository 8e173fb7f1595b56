"""The audience by group and country: now, and in the five-minute records."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import json

from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory, decode_statistics
from plaza.live.model import AudienceStatistics
from plaza.live.other_services import HeartbeatFollower

DAY_MS = 86_400_000


def require_span(from_ms: int | None, to_ms: int | None) -> None:
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise Invalid("must not be later than `to`", field="from")


class AudienceBreakdown:
    """Statistics of events and sessions by group and country."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._follower = HeartbeatFollower(functions, clock)
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def for_event(self, event: str) -> AudienceStatistics:
        """Return the current audience of an event by group and country. One round trip."""
        return await self._read("event", keys.event_audience(event))

    async def for_session(self, session: str) -> AudienceStatistics:
        """Return the current audience of a session by group and country. One round trip."""
        return await self._read("session", keys.session_audience(session))

    async def _read(self, kind: str, audience: list[str]) -> AudienceStatistics:
        text, complete, since = await self._query(audience)
        if not complete and await self._follower.follow(kind, audience, since):
            text, _, _ = await self._query(audience)
        return json.decode(text, type=AudienceStatistics)

    async def _query(self, audience: list[str]) -> tuple[str, int, int]:
        reply = await self._functions.query("live_statistics", audience, self._clock.now_ms(), self._window_ms)
        return reply[0], reply[1], reply[2]

    async def records(
        self, event: str, session: str = "", from_ms: int | None = None, to_ms: int | None = None
    ) -> list[AudienceStatistics]:
        """Return the five-minute records of a time span, by default the last day; also those not in SQL yet."""
        require_span(from_ms, to_ms)
        to_ms = self._clock.now_ms() if to_ms is None else to_ms
        from_ms = to_ms - DAY_MS if from_ms is None else from_ms
        name = keys.SESSION_RECORDS(session) if session else keys.EVENT_RECORDS(event)
        waiting = await self._valkey.call("HVALS", name)
        found = {record.timestamp: record for record in await self._history.get_records(event, session, from_ms, to_ms)}
        for record in map(decode_statistics, waiting):
            if record is not None and from_ms <= record.timestamp <= to_ms:
                found[record.timestamp] = record
        return [found[at] for at in sorted(found)]

    async def iterate_records(
        self, event: str, session: str, from_ms: int, to_ms: int | None
    ) -> AsyncIterator[AudienceStatistics]:
        """Yield the five-minute records of a time span, oldest first; those not in SQL yet are the latest."""
        to_ms = self._clock.now_ms() if to_ms is None else to_ms
        # Read before SQL, where the worker moves them meanwhile.
        name = keys.SESSION_RECORDS(session) if session else keys.EVENT_RECORDS(event)
        waiting = {r.timestamp: r for r in map(decode_statistics, await self._valkey.call("HVALS", name)) if r}
        async for record in self._history.iterate_records(event, session, from_ms, to_ms):
            yield waiting.pop(record.timestamp, record)
        for at in sorted(waiting):
            if from_ms <= at <= to_ms:
                yield waiting[at]
