"""Every figure of an audience, from the current keys and from SQL.

Figures of *now* come from Valkey only. Figures of *all time* combine all lives of the audience: the current keys, and
earlier lives that were purged and are in SQL.
"""

from __future__ import annotations

import asyncio

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.audience_breakdown import AudienceBreakdown, require_span
from plaza.live.history import AudienceHistory, AudienceTotals
from plaza.live.lifetime_totals import LifetimeTotals
from plaza.live.model import (
    SLOT_MS,
    EventOverview,
    LiveFigures,
    SessionFigures,
    SessionOfAnotherEvent,
    ViewingStats,
    distribution,
    union_ms,
)
from plaza.live.other_services import to_ms
from plaza.live.viewing_sessions import ViewingSessions

# The stream sends the viewers of this many sessions. Read larger events session by session.
MAX_STREAMED_SESSIONS = 50
# Sessions read at the same time.
CONCURRENT_SESSIONS = 50


class AudienceFigures:
    """Viewer counts and overviews of events and sessions."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._viewing_sessions = ViewingSessions(functions, history, settings, clock)
        self.totals = LifetimeTotals(functions, history, settings, clock)
        self.breakdown = AudienceBreakdown(functions, history, settings, clock)
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
        now = await self.totals.get_current(keys.event_audience(event))
        lives = (await self._history.get_lives(event)).get("", [])
        return since < now.totals.born_at and any(life.born_at != now.totals.born_at for life in lives)

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
            self.totals.get_current(keys.event_audience(event)),
            self.seen(event),
            self.breakdown.for_event(event),
        )
        totals = await self.totals.combine(event, "", now.totals, lives.get("", []))
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
        statistics, totals, sessions, starts_at = await asyncio.gather(
            self.breakdown.for_event(event),
            self.totals.get(event),
            self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)),
            self._valkey.call("HGET", keys.EVENT_INFO(event), "starts_at"),
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
            starts_at=to_ms(starts_at) or None,
        )

    async def _session(self, event: str, session: str, lives: list[AudienceTotals]) -> SessionFigures:
        now, statistics = await asyncio.gather(
            self.totals.get_current(keys.session_audience(session)), self.breakdown.for_session(session)
        )
        totals = await self.totals.combine(event, session, now.totals, lives)
        return SessionFigures(
            id=session,
            active=now.alive,
            attended=totals.attended,
            max_concurrent=totals.peak,
            max_concurrent_at=totals.peak_at or None,
            statistics=statistics,
        )
