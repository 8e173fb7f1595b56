"""What audiences look like: every figure admins ask for, from the keys as they are now and from SQL.

What is true of *now* comes from Valkey alone. What is true of *ever* is that of all lives of the audience: the one
whose keys are there, and those that were purged and are in SQL.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from msgspec import json

from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import PAGE, AudienceHistory, AudienceTotals
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
from plaza.live.viewing_sessions import ViewingSessions

DAY_MS = 86_400_000
# Of how many sessions the stream tells the viewers; an event with more is better looked at one by one.
SESSIONS_WATCHED = 50
# Sessions asked about at once.
TOGETHER = 50


@dataclass(frozen=True, slots=True)
class CurrentAudience:
    """What an audience's own keys say of it."""

    totals: AudienceTotals  # born at 0 if there are none
    alive: int
    window_ms: int
    title: str | None

    @classmethod
    async def of(cls, functions: Functions, audience: list[str], now_ms: int, window_ms: int) -> CurrentAudience:
        """One round trip, whatever the audience's size."""
        *totals, alive, window, title = await functions.query("live_figures", audience, now_ms, window_ms)
        return cls(AudienceTotals(*totals), alive, window, title)


def require_span(from_ms: int | None, to_ms: int | None) -> None:
    if from_ms is not None and to_ms is not None and from_ms > to_ms:
        raise Invalid("must not be later than `to`", field="from")


class AudienceFigures:
    """Counts and statistics of events and sessions."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._viewings = ViewingSessions(functions, history, settings, clock)
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def alive(self, event: str) -> int:
        """Viewers of an event now. One round trip, whatever their number."""
        return await self._alive(keys.EVENT_HEARTBEAT(event), keys.EVENT_INFO(event))

    async def session_alive(self, session: str) -> int:
        """Viewers of a session now. One round trip."""
        return await self._alive(keys.SESSION_HEARTBEAT(session), keys.SESSION_INFO(session))

    async def _alive(self, *names: str) -> int:
        count, _ = await self._functions.query("live_alive", names, self._clock.now_ms(), self._window_ms)
        return int(count)

    async def require_session(self, event: str, session: str) -> None:
        """Refuse a session of another event. One that nobody knows is merely empty."""
        owner = await self._valkey.call("HGET", keys.SESSION_INFO(session), "event")
        if owner is not None and owner != event:
            raise SessionOfAnotherEvent("This session belongs to another event.", field="session")

    async def seen(self, event: str, from_ms: int | None = None, to_ms: int | None = None) -> int:
        """Distinct viewers in a span, by default the last five minutes.

        Up to now it is one round trip. A span that has ended is counted from the viewing sessions in it, in steps.
        """
        require_span(from_ms, to_ms)
        now = self._clock.now_ms()
        if to_ms is None or to_ms >= now:
            since = from_ms if from_ms is not None else now - SLOT_MS
            names = (keys.EVENT_HEARTBEAT(event), keys.EVENT_LEFT(event))
            if await self._valkey.call("EXISTS", names[0]):
                recent = int(await self._functions.query("live_seen_since", names, since))
                if not await self._purged_since(event, since):
                    return recent
            to_ms = now
        since = from_ms if from_ms is not None else to_ms - SLOT_MS
        viewers = {
            viewing.viewer
            async for viewing in self._viewings.of(event)
            if viewing.started_at <= to_ms and viewing.ended_at >= since
        }
        return len(viewers)

    async def _purged_since(self, event: str, since: int) -> bool:
        """Whether an earlier life of the event, now only in SQL, may have been seen in the span."""
        now = await self._now(keys.event_audience(event))
        lives = (await self._history.lives(event)).get("", [])
        return since < now.totals.born_at and any(life.born_at != now.totals.born_at for life in lives)

    async def totals(self, event: str, session: str = "") -> AudienceTotals:
        """Peak, logins and attendance of an event or a session, of all its lives."""
        audience = keys.session_audience(session) if session else keys.event_audience(event)
        now = await self._now(audience)
        lives = (await self._history.lives(event)).get(session, [])
        return await self._together(event, session, now.totals, lives)

    async def _together(
        self, event: str, session: str, now: AudienceTotals, lives: list[AudienceTotals]
    ) -> AudienceTotals:
        past = [life for life in lives if life.born_at != now.born_at]
        if not past:
            return now
        best = max([now, *past], key=lambda life: life.peak)
        logins = now.logins + sum(life.logins for life in past)
        return AudienceTotals(
            now.born_at, best.peak, best.peak_at, logins, await self._attended(event, session, now, past)
        )

    async def _attended(self, event: str, session: str, now: AudienceTotals, past: list[AudienceTotals]) -> int:
        if not now.attended and len(past) == 1:
            return past[0].attended
        # People of several lives count once: those in SQL, and those of now who are not there yet.
        scope = session or None
        count = await self._history.attended(event, scope)
        name = keys.SESSION_ATTENDED(session) if session else keys.EVENT_ATTENDED(event)
        cursor = "0"
        fresh: set[str] = set()
        while True:
            cursor, viewers = await self._valkey.call("SSCAN", name, cursor, "COUNT", PAGE, key=name)
            for first in range(0, len(viewers), PAGE):
                page = viewers[first : first + PAGE]
                fresh |= set(page) - await self._history.known(event, scope, page)
            if cursor == "0":
                return count + len(fresh)

    async def statistics(self, event: str) -> AudienceStatistics:
        """The audience of an event by group and country now. One round trip."""
        return await self._statistics(keys.event_audience(event))

    async def session_statistics(self, session: str) -> AudienceStatistics:
        """The same of a session."""
        return await self._statistics(keys.session_audience(session))

    async def _statistics(self, audience: list[str]) -> AudienceStatistics:
        text = await self._functions.query("live_statistics", audience, self._clock.now_ms(), self._window_ms)
        return json.decode(text, type=AudienceStatistics)

    async def records(
        self, event: str, session: str = "", from_ms: int | None = None, to_ms: int | None = None
    ) -> list[AudienceStatistics]:
        """The records of each five minutes in a span, by default the last day; also those not in SQL yet."""
        require_span(from_ms, to_ms)
        to_ms = self._clock.now_ms() if to_ms is None else to_ms
        from_ms = to_ms - DAY_MS if from_ms is None else from_ms
        name = keys.SESSION_RECORDS(session) if session else keys.EVENT_RECORDS(event)
        waiting = await self._valkey.call("HVALS", name)
        found = {record.timestamp: record for record in await self._history.records(event, session, from_ms, to_ms)}
        for text in waiting:
            record = json.decode(text, type=AudienceStatistics)
            if from_ms <= record.timestamp <= to_ms:
                found[record.timestamp] = record
        return [found[at] for at in sorted(found)]

    async def viewing_stats(self, event: str, session: str) -> ViewingStats:
        """How long viewers of a session watched. Two tabs at the same time are watched once."""
        spans: dict[str, list[tuple[int, int]]] = {}
        async for viewing in self._viewings.of(event, session):
            spans.setdefault(viewing.viewer, []).append((viewing.started_at, viewing.ended_at))
        return distribution([union_ms(each) for each in spans.values()])

    async def overview(self, event: str) -> EventOverview:
        """Every figure of an event and its sessions, fifty sessions at a time."""
        known, lives, now, recent, statistics = await asyncio.gather(
            self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event)),
            self._history.lives(event),
            self._now(keys.event_audience(event)),
            self.seen(event),
            self.statistics(event),
        )
        ever = await self._together(event, "", now.totals, lives.get("", []))
        names = sorted({*known, *(session for session in lives if session)})
        sessions: list[SessionFigures] = []
        for first in range(0, len(names), TOGETHER):
            batch = names[first : first + TOGETHER]
            sessions += await asyncio.gather(*(self._session(event, name, lives.get(name, [])) for name in batch))
        return EventOverview(
            id=event,
            title=now.title,
            timestamp=statistics.timestamp,
            window_ms=now.window_ms,
            active=now.alive,
            last_five_minutes=recent,
            all_time=ever.attended,
            attended=ever.attended,
            max_concurrent=ever.peak,
            max_concurrent_at=ever.peak_at or None,
            logins=ever.logins,
            statistics=statistics,
            sessions=sessions,
        )

    async def live(self, event: str) -> LiveFigures:
        """What is worth watching second by second, with its first fifty sessions."""
        statistics, totals, sessions = await asyncio.gather(
            self.statistics(event), self.totals(event), self._valkey.call("SMEMBERS", keys.EVENT_SESSIONS(event))
        )
        watched = sorted(sessions)[:SESSIONS_WATCHED]
        alive = await asyncio.gather(*map(self.session_alive, watched))
        return LiveFigures(
            viewer_count=statistics.viewer_count,
            timestamp=statistics.timestamp,
            count_by_user_group=statistics.count_by_user_group,
            count_by_viewing_country=statistics.count_by_viewing_country,
            sessions=dict(zip(watched, alive, strict=True)),
            max_concurrent=totals.peak,
            total_login=totals.logins,
            total_attended=totals.attended,
        )

    async def _session(self, event: str, session: str, lives: list[AudienceTotals]) -> SessionFigures:
        now, statistics = await asyncio.gather(
            self._now(keys.session_audience(session)), self.session_statistics(session)
        )
        ever = await self._together(event, session, now.totals, lives)
        return SessionFigures(
            id=session,
            active=now.alive,
            attended=ever.attended,
            max_concurrent=ever.peak,
            max_concurrent_at=ever.peak_at or None,
            statistics=statistics,
        )

    async def _now(self, audience: list[str]) -> CurrentAudience:
        return await CurrentAudience.of(self._functions, audience, self._clock.now_ms(), self._window_ms)
