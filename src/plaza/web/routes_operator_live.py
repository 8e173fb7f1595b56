"""The operators' live page: the audience of an event, now and in the last six hours.

The live domain sends the figures every second. Without JavaScript the page shows them as of when it was loaded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from plaza.core.errors import Invalid
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.live.heartbeats import LiveService
from plaza.live.model import NO_START, SLOT_MS, AudienceStatistics, EventDeclaration, EventId, LiveFigures
from plaza.live.schedule import EventSchedule
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.web import chart_geometry, forms
from plaza.web.operator_navigation import operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.text_html import format_date_time, utc_time

page = PageRoutes()

# Six hours of five-minute slots.
HISTORY_SLOTS: Final = 72
# One per second for five minutes. Then the browser reconnects, which checks the session again.
MAX_UPDATES: Final = 300

# The fields of an event that operators edit.
_TEXTS: Final = ("title", "starts", "description")


@page.get("/operator/live", access=ADMIN)
async def live(
    request: Request,
    site: PageResponses,
    schedule: EventSchedule,
    figures: AudienceFigures,
    event: EventId | None = None,
) -> Response[str]:
    """Show the audience of an event by session, country and group, and its history."""
    return await _live_page(request, site, schedule, figures, event)


async def _live_page(
    request: Request,
    site: PageResponses,
    schedule: EventSchedule,
    figures: AudienceFigures,
    event: str | None,
    problem: Invalid | None = None,
) -> Response[str]:
    visitor = await site.visitors.from_request(request)
    declared, undeclared = await schedule.list_events(), await schedule.list_undeclared()
    events = [*declared, *undeclared]
    selected = event or (events[0].id if events else "")
    known = next((each for each in events if each.id == selected), None)
    if known is None and selected:
        known = await schedule.get_event(selected)
    context: dict[str, Any] = {"events": events, "event": selected, "title": selected, "now_figures": None}
    context |= {"known": known, "problem": "" if problem is None else problem.detail}
    given = forms.parse_form(request.body) if problem is not None else {}
    saved = {"title": selected, "starts": "", "description": ""}
    if known is not None:
        # As browsers send them back.
        description = known.description.replace("\r\n", "\n")
        saved = {"title": known.title, "starts": _input_time(known.starts_at), "description": description}
    typed = {"sessions": given.get("sessions", ""), **forms.edited_fields(given, *_TEXTS)}
    empty = dict.fromkeys((*_TEXTS, "sessions"), "")
    context["saved"] = saved if known is not None and known.declared else {}
    context["edited"] = empty | saved | (typed if event else {})
    context["new"] = empty | ({} if event else typed)
    if selected:
        overview = await figures.overview(selected)
        current = await figures.live(selected)
        now = site.clock.now_ms()
        records = await figures.breakdown.records(selected, from_ms=now - HISTORY_SLOTS * SLOT_MS, to_ms=now)
        context |= {"title": overview.title or selected, "overview": overview, "now_figures": current}
        context |= _history(records, now) | _shares(current)
    status = 200 if problem is None else problem.status
    return operator_page(request, site, visitor, "operator-live.html", "Live", status=status, **context)


def _input_time(ms: int | None) -> str:
    """Return a time as a field of a form has it."""
    return "" if ms is None else f"{utc_time(ms):%Y-%m-%dT%H:%M}"


def _declaration(body: bytes) -> EventDeclaration:
    """Return what an operator edited. Times are UTC, sessions are separated by commas or lines."""
    given = forms.parse_form(body)
    given["title"] = given.get("title", "").strip()
    if not given["title"]:
        raise Invalid("Title is required.", field="title")
    fields: dict[str, Any] = forms.edited_fields(given, *_TEXTS)
    if "starts" in fields:
        text = fields.pop("starts")
        fields["starts_at"] = _unix_ms(text) if text else NO_START
    fields["sessions"] = [
        each.strip() for each in given.get("sessions", "").replace("\n", ",").split(",") if each.strip()
    ]
    return forms.convert_fields(fields, EventDeclaration)


def _unix_ms(text: str) -> int:
    """Return a time that an operator entered, in UTC."""
    with suppress(ValueError):
        time = datetime.fromisoformat(text)
        if time.tzinfo is None and 1970 <= time.year < 2100:
            return int(time.replace(tzinfo=UTC).timestamp() * 1000)
    raise Invalid("Invalid time. Use a date and a time in UTC, before the year 2100.", field="starts")


@page.post("/operator/live", access=ADMIN, logged_fields=("title",))
async def declare_event(
    request: Request,
    body: bytes,
    site: PageResponses,
    schedule: EventSchedule,
    figures: AudienceFigures,
    live: LiveService,
    event: EventId | None = None,
) -> Response[str]:
    """Declare an event, with an id made of its title, or change one."""
    visitor = await site.visitors.from_request(request)
    try:
        declaration = _declaration(body)
        # The same form sent twice makes the same id.
        id = event or _new_id(declaration.title or "", site.idempotency_key(request, body))
        await live.declare(id, declaration)
    except Invalid as error:
        return await _live_page(request, site, schedule, figures, event, error)
    return site.form_response(request, visitor, b"", f"/app/operator/live?event={quote(id, safe='')}")


def _new_id(title: str, key: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60]
    return f"{name or 'event'}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


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
async def stream(
    request: Request, site: PageResponses, streams: FigureStreams, event: EventId
) -> Response[ServerSentEvent[LiveFigures]]:
    """Stream the figures of an event every second."""
    # "0": a new client also gets the stored figures of the last two minutes.
    figures = _figures(streams, event, request.headers.get("last-event-id") or "0")
    visitor = await site.visitors.from_request(request)
    return Response(site.visitors.while_admin(visitor, figures))


async def _figures(
    streams: FigureStreams, event: str, last_id: str | None
) -> AsyncGenerator[ServerSentEvent[LiveFigures], None]:
    sent = 0
    async for item in streams.subscribe(event, last_id):
        yield ServerSentEvent(item.data, id=item.id, retry_ms=item.retry_ms)
        sent += 1
        if sent == MAX_UPDATES:
            return
