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
    """The public figures of an audience: viewers now, the peak, and viewers per session; and the event's start."""

    watching: int
    most: int
    sessions: dict[str, int]
    starts_at: int | None


@page.get("/events", access=PUBLIC)
async def events(request: Request, site: PageResponses, schedule: EventSchedule, sidebar: Sidebar) -> Response[str]:
    """List events: what comes, what has viewers, what was; for admins also undeclared ones."""
    visitor = await site.visitors.from_request(request)
    listed, now = await schedule.list_events(), site.clock.now_ms()
    coming = sorted((e for e in listed if (e.starts_at or 0) > now), key=lambda event: event.starts_at or 0)
    context: dict[str, Any] = {
        "coming": coming,
        "events": [event for event in listed if event not in coming],
        "undeclared": await schedule.list_undeclared() if visitor.is_admin else [],
        "sidebar_articles": sidebar.articles_html(),
    }
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
        is_coming=(declared.starts_at or 0) > site.clock.now_ms(),
        watching=now.viewer_count,
        peak=now.max_concurrent,
        sessions=[(name, _session_label(event, name), now.sessions.get(name, 0)) for name in declared.sessions],
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
        counts = AudienceCounts(figures.viewer_count, figures.max_concurrent, figures.sessions, figures.starts_at)
        yield ServerSentEvent(counts, id=item.id, retry_ms=item.retry_ms)


def _session_label(event: str, session: str) -> str:
    """A session's id as a reader expects it: `town-hall-main` of `town-hall` is `Main`."""
    label = session.removeprefix(f"{event}-") or session
    return label if " " in label else label.replace("-", " ").replace("_", " ").capitalize()


async def _require_declared(schedule: EventSchedule, event: str) -> ScheduledEvent:
    declared = await schedule.get_event(event)
    if declared is None:
        raise NotFound("There is no such event.")
    return declared
