"""Events: the list, an event's page, and its live viewer count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from plaza.core.errors import NotFound
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.live.model import EventId
from plaza.live.schedule import EventSchedule, ScheduledEvent
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.live.viewers import ViewerAuthenticator
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.sidebar import Sidebar

page = PageRoutes()


class AudienceCounts(Struct):
    """The public figures of an audience: viewers now, the peak, and viewers per session."""

    watching: int
    most: int
    sessions: dict[str, int]


@page.get("/events", access=PUBLIC)
async def events(request: Request, site: PageResponses, schedule: EventSchedule, sidebar: Sidebar) -> Response[str]:
    """List events, most viewers first."""
    visitor = await site.visitors.from_request(request)
    context: dict[str, Any] = {"events": await schedule.list_events(), "sidebar_articles": sidebar.articles_html()}
    return site.page(request, visitor, "events.html", section="Events", **context)


@page.get("/events/{event}", access=PUBLIC)
async def event(
    request: Request,
    site: PageResponses,
    event: EventId,
    schedule: EventSchedule,
    figures: AudienceFigures,
    viewers: ViewerAuthenticator,
    sidebar: Sidebar,
) -> Response[str]:
    """Show an event and its audience. Visitors count as viewers while the page is open."""
    visitor = await site.visitors.from_request(request)
    declared = await _require_declared(schedule, event)
    now = await figures.live(event)
    # A token that is only valid for heartbeats: a page must not contain one that opens the account.
    token = "" if visitor.actor is None else viewers.tokens.issue(visitor.name).token
    return site.page(
        request,
        visitor,
        "event.html",
        section="Events",
        event=declared,
        watching=now.viewer_count,
        peak=now.max_concurrent,
        sessions={session: now.sessions.get(session, 0) for session in declared.sessions},
        token=token,
        sidebar_articles=sidebar.articles_html(),
    )


@page.get("/events/{event}/watching", access=PUBLIC, media_type=EVENTS)
async def watching(
    request: Request, event: EventId, schedule: EventSchedule, streams: FigureStreams
) -> Response[ServerSentEvent[AudienceCounts]]:
    """Stream the viewer count of an event every second."""
    await _require_declared(schedule, event)
    # "0": a new client also gets the stored counts of the last minute.
    return Response(_counts(streams, event, request.headers.get("last-event-id") or "0"))


async def _counts(
    streams: FigureStreams, event: str, last_id: str | None
) -> AsyncIterator[ServerSentEvent[AudienceCounts]]:
    async for item in streams.subscribe(event, last_id):
        figures = item.data
        counts = AudienceCounts(figures.viewer_count, figures.max_concurrent, figures.sessions)
        yield ServerSentEvent(counts, id=item.id, retry_ms=item.retry_ms)


async def _require_declared(schedule: EventSchedule, event: str) -> ScheduledEvent:
    declared = await schedule.get_event(event)
    if declared is None:
        raise NotFound("There is no such event.")
    return declared
