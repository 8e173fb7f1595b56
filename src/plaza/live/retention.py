"""How long viewers stay: retention curves, and sessions or events side by side.

Everything is computed from viewing sessions, wherever they are, so it stays available when the raw keys are gone. A
viewer at two places at once counts once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.sequences import chunks
from plaza.live.history import ViewingSession
from plaza.live.lifetime_totals import LifetimeTotals
from plaza.live.model import ViewingStats, distribution, is_valid_id, union_ms
from plaza.live.viewing_sessions import ViewingSessions

MINUTE_MS: Final = 60_000
# The minutes at which a comparison shows who is still watching.
COMPARED_MINUTES: Final = (5, 15, 30, 60)
MAX_COMPARED_EVENTS: Final = 20
# Viewers that are computed between two turns of the event loop: about a millisecond.
VIEWERS_PER_TURN: Final = 250

Minutes = Annotated[int, Meta(ge=1, le=1_440, description="The last minute of the curve.")]
EventIds = Annotated[
    str,
    Meta(min_length=1, max_length=4_000, description="At most 20, separated by commas.", examples=["launch,summit"]),
]
Span = tuple[int, int, bool]  # start, end, whether it goes on


class RetentionMinute(Struct):
    """One minute after each viewer's first heartbeat.

    `observed` viewers joined at least so long ago or have gone; `watching` of them were watching then. In that minute
    `dropped` viewers left and did not come back, and `rejoined` came back. `share` is None if none was observed.
    """

    minute: int
    observed: int
    watching: int
    share: float | None
    dropped: int
    rejoined: int


class RetentionCurve(Struct):
    """How many viewers are still watching after n minutes."""

    viewers: int
    rejoined_viewers: int
    minutes: list[RetentionMinute]


class ComparedAudience(Struct):
    """One session or event in a comparison. `retention` is the share still watching after so many minutes."""

    id: str
    attended: int
    max_concurrent: int
    max_concurrent_at: int | None
    logins: int
    rejoined_viewers: int
    minutes: ViewingStats
    retention: dict[str, float | None]


class AudienceReport(Struct):
    """The curve of an audience, the sessions of its event, and the event itself."""

    curve: RetentionCurve
    sessions: list[ComparedAudience]
    event: ComparedAudience


class SessionComparison(Struct):
    sessions: list[ComparedAudience]


class EventComparison(Struct):
    events: list[ComparedAudience]


class WatchTimes:
    """The viewing sessions of an audience, by viewer."""

    def __init__(self, now_ms: int) -> None:
        self._now = now_ms
        self._spans: dict[str, list[Span]] = {}
        self.logins = 0

    def add(self, viewing: ViewingSession) -> None:
        end = max(viewing.ended_at, self._now) if viewing.under_way else viewing.ended_at
        self._spans.setdefault(viewing.viewer, []).append((viewing.started_at, end, viewing.under_way))
        self.logins += 1

    async def curve(self, last_minute: int) -> RetentionCurve:
        """Return the retention curve up to a minute."""
        size = last_minute + 2
        watching, observed, dropped, rejoined = ([0] * size for _ in range(4))
        rejoined_viewers = 0
        async for some in self._in_turns():
            for spans in some:
                visits = _merge(spans)
                first, (_, gone, goes_on) = visits[0][0], visits[-1]
                rejoined_viewers += len(visits) > 1
                observed[min((self._now - first) // MINUTE_MS, last_minute) + 1 if goes_on else size - 1] -= 1
                if not goes_on:
                    dropped[min((gone - first) // MINUTE_MS, size - 1)] += 1
                for i, (start, end, _) in enumerate(visits):
                    since = -((first - start) // MINUTE_MS)  # the first whole minute in the visit
                    until = (end - first) // MINUTE_MS
                    if since <= min(until, last_minute):
                        watching[since] += 1
                        watching[min(until, last_minute) + 1] -= 1
                    if i:
                        rejoined[min((start - first) // MINUTE_MS, size - 1)] += 1
        viewers = len(self._spans)
        minutes, still, there = [], 0, viewers
        for minute in range(last_minute + 1):
            still += watching[minute]
            there += observed[minute]
            share = round(still / there, 4) if there else None
            minutes.append(RetentionMinute(minute, there, still, share, dropped[minute], rejoined[minute]))
        return RetentionCurve(viewers, rejoined_viewers, minutes)

    async def minutes(self) -> ViewingStats:
        watched: list[int] = []
        async for some in self._in_turns():
            watched += [union_ms([(start, end) for start, end, _ in spans]) for spans in some]
        return distribution(watched)

    async def _in_turns(self) -> AsyncIterator[list[list[Span]]]:
        """Yield the spans of some viewers after the other, and let the event loop run in between."""
        for some in chunks(self._spans.values(), VIEWERS_PER_TURN):
            yield some
            await asyncio.sleep(0)


def _merge(spans: list[Span]) -> list[Span]:
    """Return the visits of a viewer, in order: spans that overlap or touch are one."""
    visits: list[Span] = []
    for start, end, goes_on in sorted(spans):
        if visits and start <= visits[-1][1]:
            last_start, last_end, last_goes_on = visits[-1]
            visits[-1] = (last_start, max(last_end, end), last_goes_on or goes_on)
        else:
            visits.append((start, end, goes_on))
    return visits


class Retention:
    """Retention curves and comparisons. Each reads every viewing session of the audience, page by page."""

    def __init__(self, viewing_sessions: ViewingSessions, totals: LifetimeTotals, clock: Clock) -> None:
        self._viewing_sessions = viewing_sessions
        self._totals = totals
        self._clock = clock

    async def curve(self, event: str, session: str | None, minutes: int) -> RetentionCurve:
        """Return the retention curve of an event, or of one of its sessions."""
        times = WatchTimes(self._clock.now_ms())
        async for viewing in self._viewing_sessions.iterate(event, session):
            times.add(viewing)
        return await times.curve(minutes)

    async def compare_sessions(self, event: str) -> SessionComparison:
        """Return the sessions of an event side by side, those with the most viewers first."""
        _, by_session = await self._read_sessions(event)
        return await self._compare_sessions(event, by_session)

    async def report(self, event: str, session: str | None, minutes: int) -> AudienceReport:
        """Return the curve of an event or a session, and the event and its sessions as compared. Reads them once."""
        whole, by_session = await self._read_sessions(event)
        times = whole if session is None else by_session.get(session, WatchTimes(0))
        return AudienceReport(
            await times.curve(minutes),
            (await self._compare_sessions(event, by_session)).sessions,
            await self._compare(event, "", event, whole),
        )

    async def _read_sessions(self, event: str) -> tuple[WatchTimes, dict[str, WatchTimes]]:
        now = self._clock.now_ms()
        whole, by_session = WatchTimes(now), dict[str, WatchTimes]()
        async for viewing in self._viewing_sessions.iterate(event):
            whole.add(viewing)
            if viewing.session:
                by_session.setdefault(viewing.session, WatchTimes(now)).add(viewing)
        return whole, by_session

    async def _compare_sessions(self, event: str, by_session: Mapping[str, WatchTimes]) -> SessionComparison:
        rows = [await self._compare(event, session, session, times) for session, times in by_session.items()]
        return SessionComparison(sorted(rows, key=lambda row: (-row.attended, row.id)))

    async def compare_events(self, events: Sequence[str]) -> EventComparison:
        """Return events side by side, in the order given."""
        if len(events) > MAX_COMPARED_EVENTS or not all(map(is_valid_id, events)):
            raise Invalid(f"Give at most {MAX_COMPARED_EVENTS} ids of events, separated by commas", field="events")
        rows = []
        for event in dict.fromkeys(events):
            times = WatchTimes(self._clock.now_ms())
            async for viewing in self._viewing_sessions.iterate(event):
                times.add(viewing)
            rows.append(await self._compare(event, "", event, times))
        return EventComparison(rows)

    async def _compare(self, event: str, session: str, id: str, times: WatchTimes) -> ComparedAudience:
        totals = await self._totals.get(event, session)
        curve = await times.curve(max(COMPARED_MINUTES))
        return ComparedAudience(
            id=id,
            attended=totals.attended,
            max_concurrent=totals.peak,
            max_concurrent_at=totals.peak_at or None,
            logins=times.logins,
            rejoined_viewers=curve.rejoined_viewers,
            minutes=await times.minutes(),
            retention={str(minute): curve.minutes[minute].share for minute in COMPARED_MINUTES},
        )
