"""The operators' live page: the audience of an event, now and in the last six hours.

The live domain sends the figures every second. Without JavaScript the page shows them as of when it was loaded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.live.model import SLOT_MS, AudienceStatistics, EventId, LiveFigures
from plaza.live.schedule import EventSchedule
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.web import chart_geometry
from plaza.web.operator_navigation import SECTION, operator_tabs
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import format_date_time

page = PageRoutes()

# Six hours of five-minute slots.
HISTORY_SLOTS: Final = 72
# One per second for five minutes. Then the browser reconnects, which checks again that the user is an admin.
MAX_UPDATES: Final = 300


@page.get("/operator/live", access=ADMIN)
async def live(
    request: Request,
    site: PageResponses,
    schedule: EventSchedule,
    figures: AudienceFigures,
    event: EventId | None = None,
) -> Response[str]:
    """Show the audience of an event by session, country and group, and its history."""
    visitor = await site.visitors.from_request(request)
    events = await schedule.list_events()
    selected = event or (events[0].id if events else "")
    context: dict[str, Any] = {"events": events, "event": selected, "title": selected, "now_figures": None}
    if selected:
        overview = await figures.overview(selected)
        current = await figures.live(selected)
        now = site.clock.now_ms()
        records = await figures.breakdown.records(selected, from_ms=now - HISTORY_SLOTS * SLOT_MS, to_ms=now)
        context |= {"title": overview.title or selected, "overview": overview, "now_figures": current}
        context |= _history(records, now) | _shares(current)
    return site.page(request, visitor, "operator-live.html", section=SECTION, tabs=operator_tabs("Live"), **context)


def _history(records: list[AudienceStatistics], now: int) -> dict[str, Any]:
    """The chart of the last hours. A slot without viewers has no record, and its position stays empty."""
    by_slot = {HISTORY_SLOTS - 1 - (now - record.timestamp) // SLOT_MS: record for record in records}
    values = {slot: (record.viewer_count, _bar_label(record)) for slot, record in by_slot.items() if slot >= 0}
    maximum = max((count for count, _ in values.values()), default=0)
    return {"history": records, "bars": chart_geometry.time_bars(values, HISTORY_SLOTS), "history_max": maximum}


def _bar_label(record: AudienceStatistics) -> str:
    viewers = "viewer" if record.viewer_count == 1 else "viewers"
    return f"{format_date_time(record.timestamp)}: {record.viewer_count:,} {viewers}"


def _shares(figures: LiveFigures) -> dict[str, Any]:
    """The tables of shares: heading, kind, largest shares, and the number of further entries."""
    parts = (
        ("Sessions", "session", figures.sessions),
        ("Countries", "country", figures.count_by_viewing_country),
        ("Groups", "group", figures.count_by_user_group),
    )
    return {
        "max_shares": chart_geometry.MAX_SHARES,
        "shares": [
            (heading, kind, chart_geometry.largest_shares(counts), max(len(counts) - chart_geometry.MAX_SHARES, 0))
            for heading, kind, counts in parts
        ],
    }


@page.get("/operator/live/stream", access=ADMIN, media_type=EVENTS)
async def stream(request: Request, streams: FigureStreams, event: EventId) -> Response[ServerSentEvent[LiveFigures]]:
    """Stream the figures of an event every second."""
    # "0": a new client also gets the stored figures of the last two minutes.
    return Response(_figures(streams, event, request.headers.get("last-event-id") or "0"))


async def _figures(
    streams: FigureStreams, event: str, last_id: str | None
) -> AsyncIterator[ServerSentEvent[LiveFigures]]:
    sent = 0
    async for item in streams.subscribe(event, last_id):
        yield ServerSentEvent(item.data, id=item.id, retry_ms=item.retry_ms)
        sent += 1
        if sent == MAX_UPDATES:
            return
