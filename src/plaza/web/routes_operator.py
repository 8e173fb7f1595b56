"""For operators: who watches what, now and in the last hours.

The figures of an audience are the live domain's, which sends them every second; without a script the page says the
same, as of when it was loaded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Event, Response
from plaza.live.model import SLOT_MS, AudienceStatistics, EventId, LiveFigures
from plaza.live.schedule import EventSchedule
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.web import charts, rendering
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.text_html import exact

page = PageRoutes()

SECTION: Final = "Operate"
# Six hours of five minutes.
SLOTS: Final = 72
# Five minutes of seconds.
MOST_SENT: Final = 300


def tabs(on: str) -> dict[str, Any]:
    """The operators' pages, and which of them this is."""
    every = (("Live", "/app/operator/live"), ("Keys", "/app/operator/keys"), ("Health", "/app/operator/health"))
    return {"tabs": rendering.tabs("For operators", every, on)}


@page.get("/operator", access=ADMIN)
async def start() -> Response[str]:
    """The first of the operators' pages."""
    return Response(status=303, headers=[("location", "/app/operator/live")])


@page.get("/operator/live", access=ADMIN)
async def live(
    request: Request, site: Site, programme: EventSchedule, figures: AudienceFigures, event: EventId | None = None
) -> Response[str]:
    """Who watches an event: by session, country and group, and the last hours in steps of five minutes."""
    who = await site.visitors.of(request)
    showings = await programme.all()
    chosen = event or (showings[0].id if showings else "")
    context: dict[str, Any] = {"showings": showings, "event": chosen, "title": chosen, "now_figures": None}
    if chosen:
        overview = await figures.overview(chosen)
        context |= {"title": overview.title or chosen, "overview": overview, "now_figures": await figures.live(chosen)}
        now = site.clock.now_ms()
        context |= _history(await figures.records(chosen, from_ms=now - SLOTS * SLOT_MS, to_ms=now), now)
        context |= _shares(context["now_figures"])
    return site.page(request, who, "operator-live.html", section=SECTION, **tabs("Live"), **context)


def _history(records: list[AudienceStatistics], now: int) -> dict[str, Any]:
    """What was, each five minutes at their own place: while nobody watches there are no records."""
    last = {SLOTS - 1 - (now - record.timestamp) // SLOT_MS: record for record in records}
    shown = {place: (record.viewer_count, _said(record)) for place, record in last.items() if place >= 0}
    most = max((count for count, _ in shown.values()), default=0)
    return {"history": records, "columns": charts.columns(shown, SLOTS), "history_most": most}


def _said(record: AudienceStatistics) -> str:
    """What a bar says."""
    return f"{exact(record.timestamp)}: {record.viewer_count:,} {'viewer' if record.viewer_count == 1 else 'viewers'}"


def _shares(now: LiveFigures) -> dict[str, Any]:
    parts = (
        ("Sessions", "session", now.sessions),
        ("Countries", "country", now.count_by_viewing_country),
        ("Groups", "group", now.count_by_user_group),
    )
    more = (max(len(counts) - charts.SHARES, 0) for _, _, counts in parts)
    return {"shares": [(name, kind, charts.shares(counts), next(more)) for name, kind, counts in parts]}


@page.get("/operator/live/stream", access=ADMIN, media_type=EVENTS)
async def stream(request: Request, site: Site, feeds: FigureStreams, event: EventId) -> Response[Event[LiveFigures]]:
    """The figures of an event every second, as server-sent events."""
    # Whoever comes new is shown the last two minutes too, if somebody has been watching.
    return Response(_figures(feeds, event, request.headers.get("last-event-id") or "0"))


async def _figures(feeds: FigureStreams, event: str, last_id: str | None) -> AsyncIterator[Event[LiveFigures]]:
    """For some minutes: then the browser asks again, and who is no admin any more is refused."""
    sent = 0
    async for item in feeds.watch(event, last_id):
        yield Event(item.data, id=item.id, retry_ms=item.retry_ms)
        sent += 1
        if sent == MOST_SENT:
            return
