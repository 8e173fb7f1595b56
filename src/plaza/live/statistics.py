"""Every figure of an audience, from the current keys and from SQL.

Figures of *now* come from Valkey only. Figures of *all time* combine all lives of the audience: the current keys, and
earlier lives that were purged and are in SQL.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from msgspec import json

from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.core.valkey import scan_pages
from plaza.live import keys
from plaza.live.history import PAGE_SIZE, AudienceHistory, AudienceTotals, decode_statistics
from plaza.live.model import (
    SLOT_MS,
    AudienceStatistics,
    EventOverview,
    LiveFigures,
    SessionFigures,
    SessionOfAnotherEvent,
    ViewingStats,
    distribution,
    union_ms,
)
from plaza.live.other_services import HeartbeatFollower
from plaza.live.viewing_sessions import ViewingSessions

DAY_MS = 86_400_000
# The stream sends the viewers of this many sessions. Read larger events session by session.
MAX_STREAMED_SESSIONS = 50
# Sessions read at the same time.
CONCURRENT_SESSIONS = 50


@dataclass(frozen=True, slots=True)
class CurrentAudience:
    """The figures in an audience's own keys."""

    totals: AudienceTotals  # `born_at` is 0 if the keys do not exist
    seen: int
    alive: int
    window_ms: int
    title: str | None

    @classmethod
    async def read(cls, functions: Functions, audience: list[str], now_ms: int, window_ms: int) -> CurrentAudience:
        """Read the figures. One round trip, for any number of viewers."""
        *totals, seen, alive, window, title = await functions.query("live_figures", audience, now_ms, window_ms)
        return cls(AudienceTotals(*totals), seen, alive, window, title)


def require_span(from_ms: int | None, to_ms: int | None) -> None:
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise Invalid("must not be later than `to`", field="from")


class AudienceFigures:
    """Counts and statistics of events and sessions."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._viewing_sessions = ViewingSessions(functions, history, settings, clock)
        self._follower = HeartbeatFollower(functions, clock)
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def alive(self, event: str) -> int:
        """Return the current number of viewers of an event. One round trip, for any number of viewers."""
        return await self._alive(keys.EVENT_HEARTBEAT(event), keys.EVENT_INFO(event))

    async def session_alive(self, session: str) -> int:
        """Return the current number of viewers of a session. One round trip."""
        return await self._alive(keys.SESSION_HEARTBEAT(session), keys.SESSION_INFO(session))

    async def _alive(self, *names: str) -> int:
        count, _ = await self._functions.query("live_alive", names, self._clock.now_ms(), self._window_ms)
        return int(count)

    async def require_session(self, event: str, session: str) -> None:
        """Refuse a session of another event. An unknown session counts as empty."""
        owner = await self._valkey.call("HGET", keys.SESSION_INFO(session), "event")
        if owner is not None and owner != event:
            raise SessionOfAnotherEvent("This session belongs to another event.", field="session")

    async def seen(self, event: str, from_ms: int | None = None, to_ms: int | None = None) -> int:
        """Return the number of distinct viewers in a time span, by default the last five minutes.

        A viewer counts who was alive, beat or left in the span. A span up to now costs one round trip. A span that has
        ended is counted from its viewing sessions, page by page.
        """
        require_span(from_ms, to_ms)
        now = self._clock.now_ms()
        if to_ms is None or to_ms >= now:
            since = from_ms if from_ms is not None else now - SLOT_MS
            names = (keys.EVENT_HEARTBEAT(event), keys.EVENT_LEFT(event), keys.EVENT_INFO(event))
            if await self._valkey.call("EXISTS", names[0]):
                recent = int(await self._functions.query("live_seen_since", names, now, self._window_ms, since))
                if not await self._has_earlier_life(event, since):
                    return recent
            to_ms = now
        since = from_ms if from_ms is not None else to_ms - SLOT_MS
        viewers = {
            viewing.viewer
            async for viewing in self._viewing_sessions.iterate(event)
            if viewing.started_at <= to_ms and (viewing.under_way or viewing.ended_at >= since)
        }
        return len(viewers)

    async def _has_earlier_life(self, event: str, since: int) -> bool:
        """Whether the span may contain viewers of an earlier life, which is only in SQL."""
        now = await self._current(keys.event_audience(event))
        lives = (await self._history.get_lives(event)).get("", [])
        return since < now.totals.born_at and any(life.born_at != now.totals.born_at for life in lives)

    async def totals(self, event: str, session: str = "") -> AudienceTotals:
        """Return peak, logins and attendance of an event or a session, over all its lives."""
        audience = keys.session_audience(session) if session else keys.event_audience(event)
        now = await self._current(audience)
        lives = (await self._history.get_lives(event)).get(session, [])
        return await self._combine(event, session, now.totals, lives)

    async def all_time(self, event: str) -> int:
        """Return how many distinct viewers were ever seen."""
        now = await self._current(keys.event_audience(event))
        lives = (await self._history.get_lives(event)).get("", [])
        return max(now.seen, (await self._combine(event, "", now.totals, lives)).attended)

    async def _combine(
        self, event: str, session: str, now: AudienceTotals, lives: list[AudienceTotals]
    ) -> AudienceTotals:
        past = [life for life in lives if life.born_at != now.born_at]
        if not past:
            return now
        best = max([now, *past], key=lambda life: life.peak)
        logins = now.logins + sum(life.logins for life in past)
        attended = await self._attended(event, session, now, past)
        return AudienceTotals(now.born_at, best.peak, best.peak_at, logins, attended)

    async def _attended(self, event: str, session: str, now: AudienceTotals, past: list[AudienceTotals]) -> int:
        """Count the viewers of several lives once: those in SQL, and the current ones who are not in SQL yet."""
        if not now.attended and len(past) == 1:
            return past[0].attended
        scope = session or None
        recorded = await self._history.count_attended(event, scope)
        name = keys.SESSION_ATTENDED(session) if session else keys.EVENT_ATTENDED(event)
        new: set[str] = set()
        async for viewers in scan_pages(self._valkey, "SSCAN", name, count=PAGE_SIZE):
            for page in chunks(viewers, PAGE_SIZE):
                new |= set(page) - await self._history.find_attended(event, scope, page)
        return recorded + len(new)

    async def statistics(self, event: str) -> AudienceStatistics:
        """Return the current audience of an event by group and country. One round trip."""
        return await self._statistics("event", keys.event_audience(event))

    async def session_statistics(self, session: str) -> AudienceStatistics:
        """Return the current audience of a session by group and country. One round trip."""
        return await self._statistics("session", keys.session_audience(session))

    async def _statistics(self, kind: str, audience: list[str]) -> AudienceStatistics:
        text, complete, since = await self._query_statistics(audience)
        if not complete and await self._follower.follow(kind, audience, since):
            text, _, _ = await self._query_statistics(audience)
        return json.decode(text, type=AudienceStatistics)

    async def _query_statistics(self, audience: list[str]) -> tuple[str, int, int]:
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

    async def viewing_stats(self, event: str, session: str) -> ViewingStats:
        """Return how long viewers watched a session. Time with two open tabs counts once."""
        spans: dict[str, list[tuple[int, int]]] = {}
        async for viewing in self._viewing_sessions.iterate(event, session):
            spans.setdefault(viewing.viewer, []).append((viewing.started_at, viewing.ended_at))
        return distribution([union_ms(each) for each in spans.values()])

    async def overview(self, event: str) -> EventOverview:
        """Return every figure of an event and its sessions, fifty sessions at a time."""
        known, lives, now, recent, statistics = await asyncio.gather(
            self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)),
            self._history.get_lives(event),
            self._current(keys.event_audience(event)),
            self.seen(event),
            self.statistics(event),
        )
        totals = await self._combine(event, "", now.totals, lives.get("", []))
        names = sorted({*known, *(session for session in lives if session)})
        sessions: list[SessionFigures] = []
        for batch in chunks(names, CONCURRENT_SESSIONS):
            sessions += await asyncio.gather(*(self._session(event, name, lives.get(name, [])) for name in batch))
        return EventOverview(
            id=event,
            title=now.title,
            timestamp=statistics.timestamp,
            window_ms=now.window_ms,
            active=now.alive,
            last_five_minutes=recent,
            all_time=max(now.seen, totals.attended),
            attended=totals.attended,
            max_concurrent=totals.peak,
            max_concurrent_at=totals.peak_at or None,
            logins=totals.logins,
            statistics=statistics,
            sessions=sessions,
        )

    async def live(self, event: str) -> LiveFigures:
        """Return the figures that the stream sends, with the first fifty sessions."""
        statistics, totals, sessions = await asyncio.gather(
            self.statistics(event), self.totals(event), self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event))
        )
        streamed = sorted(sessions)[:MAX_STREAMED_SESSIONS]
        alive = await asyncio.gather(*map(self.session_alive, streamed))
        return LiveFigures(
            viewer_count=statistics.viewer_count,
            timestamp=statistics.timestamp,
            count_by_user_group=statistics.count_by_user_group,
            count_by_viewing_country=statistics.count_by_viewing_country,
            sessions=dict(zip(streamed, alive, strict=True)),
            max_concurrent=totals.peak,
            total_login=totals.logins,
            total_attended=totals.attended,
        )

    async def _session(self, event: str, session: str, lives: list[AudienceTotals]) -> SessionFigures:
        now, statistics = await asyncio.gather(
            self._current(keys.session_audience(session)), self.session_statistics(session)
        )
        totals = await self._combine(event, session, now.totals, lives)
        return SessionFigures(
            id=session,
            active=now.alive,
            attended=totals.attended,
            max_concurrent=totals.peak,
            max_concurrent_at=totals.peak_at or None,
            statistics=statistics,
        )

    async def _current(self, audience: list[str]) -> CurrentAudience:
        return await CurrentAudience.read(self._functions, audience, self._clock.now_ms(), self._window_ms)
