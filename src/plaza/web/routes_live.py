"""Events: what is on, and how many watch, as it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from plaza.core.errors import NotFound
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Event, Response
from plaza.live.model import EventId
from plaza.live.schedule import EventSchedule, ScheduledEvent
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.live.viewers import ViewerAuthenticator
from plaza.web.routing import PageRoutes
from plaza.web.site import Site

page = PageRoutes()


class Watching(Struct):
    """What everybody may know of an audience: how many, here and in each session, and the most there were."""

    watching: int
    most: int
    sessions: dict[str, int]


@page.get("/events", access=PUBLIC)
async def events(request: Request, site: Site, programme: EventSchedule) -> Response[str]:
    """What is on."""
    who = await site.visitors.of(request)
    return site.page(request, who, "events.html", section="Events", showings=await programme.all())


@page.get("/events/{event}", access=PUBLIC)
async def event(
    request: Request,
    site: Site,
    event: EventId,
    programme: EventSchedule,
    figures: AudienceFigures,
    viewers: ViewerAuthenticator,
) -> Response[str]:
    """An event and its audience. Who has the page open is counted as watching."""
    who = await site.visitors.of(request)
    showing = await _declared(programme, event)
    now = await figures.live(event)
    # A token for heartbeats alone: a page must not hold anything that opens the account.
    token = "" if who.actor is None else viewers.tokens.issue(who.name).token
    return site.page(
        request,
        who,
        "event.html",
        section="Events",
        showing=showing,
        watching=now.viewer_count,
        most=now.max_concurrent,
        sessions={session: now.sessions.get(session, 0) for session in showing.sessions},
        token=token,
    )


@page.get("/events/{event}/watching", access=PUBLIC, media_type=EVENTS)
async def watching(
    request: Request, event: EventId, programme: EventSchedule, feeds: FigureStreams
) -> Response[Event[Watching]]:
    """How many watch, every second, as server-sent events."""
    await _declared(programme, event)
    # Whoever comes new is shown the last minute too, if somebody has been watching.
    return Response(_counts(feeds, event, request.headers.get("last-event-id") or "0"))


async def _counts(feeds: FigureStreams, event: str, last_id: str | None) -> AsyncIterator[Event[Watching]]:
    async for item in feeds.watch(event, last_id):
        now = item.data
        counts = Watching(now.viewer_count, now.max_concurrent, now.sessions)
        yield Event(counts, id=item.id, retry_ms=item.retry_ms)


async def _declared(programme: EventSchedule, event: str) -> ScheduledEvent:
    showing = await programme.one(event)
    if showing is None:
        raise NotFound("There is no such event.")
    return showing
