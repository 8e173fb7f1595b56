"""Audiences over HTTP. Viewers beat and leave; figures are for admins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.resources import files

from plaza.core.auth import Actor
from plaza.core.http.access import ADMIN, PUBLIC, VIEWER
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.core.http.routes import Routes
from plaza.live import attendance
from plaza.live.model import (
    AudienceStatistics,
    EventDeclaration,
    EventId,
    EventOverview,
    Heartbeat,
    HeartbeatResult,
    LeaveRequest,
    LeaveResult,
    LiveEvent,
    LiveFigures,
    SessionId,
    StatisticsRecords,
    UnixMs,
    ViewerCount,
    ViewingStats,
)
from plaza.live.service import LiveService
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.live.viewer_report import HeartbeatReport, HeartbeatReports, ReportRequest
from plaza.live.viewers import ViewerAuthenticator, ViewerToken
from plaza.live.viewing_sessions import ViewingSessions

route = Routes("live", about="Audiences of live events and their sessions.")
AT = "/analytics/events/{event}"
IN = AT + "/sessions/{session}"
SCRIPT = files("plaza.live").joinpath("live.js").read_bytes()


@route.post("/analytics/viewer-token", access=PUBLIC, status=201, idempotent=True, limit="viewer")
async def viewer_token(viewers: ViewerAuthenticator) -> ViewerToken:
    """A token for a viewer without an account, good for heartbeats and nothing else."""
    return viewers.tokens.issue()


@route.put(AT, access=ADMIN)
async def declare(event: EventId, body: EventDeclaration, live: LiveService) -> LiveEvent:
    """Declare an event, or add to it: what is not given stays."""
    return await live.declare(event, body)


@route.get(AT, access=ADMIN)
async def declared(event: EventId, live: LiveService) -> LiveEvent:
    """An event as it was declared, with the sessions that were declared or seen."""
    return await live.event(event)


@route.post(AT + "/heartbeat", access=VIEWER, limit=None)
async def heartbeat(
    actor: Actor, request: Request, event: EventId, body: Heartbeat, viewers: ViewerAuthenticator, live: LiveService
) -> HeartbeatResult:
    """I am watching. Beat again in `next_heartbeat_ms`. One round trip."""
    return await live.beat(await viewers.watcher(actor, request), event, body)


@route.post(AT + "/leave", access=VIEWER, limit=None)
async def leave(
    actor: Actor, request: Request, event: EventId, body: LeaveRequest, viewers: ViewerAuthenticator, live: LiveService
) -> LeaveResult:
    """I have stopped watching there. One round trip."""
    return await live.leave(await viewers.watcher(actor, request), event, body)


@route.get(AT + "/viewers/active-count", access=ADMIN)
async def active_count(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Viewers alive now."""
    return ViewerCount(await figures.alive(event))


@route.get(AT + "/viewers/count", access=ADMIN)
async def seen_count(
    event: EventId, figures: AudienceFigures, from_: UnixMs | None = None, to: UnixMs | None = None
) -> ViewerCount:
    """Different viewers in a span, by default the last five minutes."""
    return ViewerCount(await figures.seen(event, from_, to))


@route.get(AT + "/viewers/all-time-active-count", access=ADMIN)
async def all_time_count(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Different viewers ever seen."""
    return ViewerCount((await figures.totals(event)).attended)


@route.get(AT + "/viewers/total-attended-count", access=ADMIN)
async def attended_count(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Different viewers who ever attended."""
    return ViewerCount((await figures.totals(event)).attended)


@route.get(AT + "/viewers/max-concurrent-count", access=ADMIN)
async def max_concurrent_count(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """The most viewers alive at once."""
    return ViewerCount((await figures.totals(event)).peak)


@route.get(AT + "/viewers/total-login-count", access=ADMIN)
async def login_count(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Viewing sessions begun."""
    return ViewerCount((await figures.totals(event)).logins)


@route.get(IN + "/viewers/active-count", access=ADMIN)
async def session_active_count(event: EventId, session: SessionId, figures: AudienceFigures) -> ViewerCount:
    """Viewers of a session alive now."""
    await figures.require_session(event, session)
    return ViewerCount(await figures.session_alive(session))


@route.get(IN + "/viewers/total-attended-count", access=ADMIN)
async def session_attended_count(event: EventId, session: SessionId, figures: AudienceFigures) -> ViewerCount:
    """Different viewers who ever attended a session."""
    await figures.require_session(event, session)
    return ViewerCount((await figures.totals(event, session)).attended)


@route.get(IN + "/viewers/max-concurrent-count", access=ADMIN)
async def session_max_concurrent_count(event: EventId, session: SessionId, figures: AudienceFigures) -> ViewerCount:
    """The most viewers of a session alive at once."""
    await figures.require_session(event, session)
    return ViewerCount((await figures.totals(event, session)).peak)


@route.get(IN + "/viewing-stats", access=ADMIN, in_openapi=False)
@route.get(IN + "/viewers/viewing-stats", access=ADMIN)
async def viewing_stats(event: EventId, session: SessionId, figures: AudienceFigures) -> ViewingStats:
    """Minutes watched by the viewers of a session: mean, median and p90."""
    await figures.require_session(event, session)
    return await figures.viewing_stats(event, session)


@route.get(AT + "/statistics/live", access=ADMIN)
async def statistics_now(event: EventId, figures: AudienceFigures) -> AudienceStatistics:
    """The audience of now by group and country."""
    return await figures.statistics(event)


@route.get(IN + "/statistics/live", access=ADMIN)
async def session_statistics_now(event: EventId, session: SessionId, figures: AudienceFigures) -> AudienceStatistics:
    """A session's audience of now by group and country."""
    await figures.require_session(event, session)
    return await figures.session_statistics(session)


@route.get(AT + "/statistics", access=ADMIN)
async def statistics(
    event: EventId, figures: AudienceFigures, from_: UnixMs | None = None, to: UnixMs | None = None
) -> StatisticsRecords:
    """The audience at the end of each five minutes of a span, by default the last day."""
    return StatisticsRecords(await figures.records(event, "", from_, to))


@route.get(IN + "/statistics", access=ADMIN)
async def session_statistics(
    event: EventId,
    session: SessionId,
    figures: AudienceFigures,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> StatisticsRecords:
    """A session's audience at the end of each five minutes of a span, by default the last day."""
    await figures.require_session(event, session)
    return StatisticsRecords(await figures.records(event, session, from_, to))


@route.get(AT + "/overview", access=ADMIN)
async def overview(event: EventId, figures: AudienceFigures) -> EventOverview:
    """All figures of an event and of its sessions."""
    return await figures.overview(event)


@route.post(AT + "/heartbeat-report", access=ADMIN, limit="read")
async def heartbeat_report(event: EventId, body: ReportRequest, reports: HeartbeatReports) -> HeartbeatReport:
    """When and where viewers were last seen: those named, or all who are alive."""
    return await reports.on(event, body)


@route.get(AT + "/stream", access=ADMIN, media_type=EVENTS)
async def stream(event: EventId, request: Request, feeds: FigureStreams) -> Response[ServerSentEvent[LiveFigures]]:
    """The live figures every second, as server-sent events; `Last-Event-ID` goes on where it broke off."""
    return Response(feeds.watch(event, request.headers.get("last-event-id")))


@route.get(AT + "/attendance.csv", access=ADMIN, media_type="text/csv; charset=utf-8")
async def attendance_csv(event: EventId, viewings: ViewingSessions) -> Response[str]:
    """Who was there, from when to when: a row per viewing session. No addresses."""
    pieces: AsyncIterator[str] = attendance.table(viewings, event)
    return Response(pieces, headers=[("content-disposition", 'attachment; filename="attendance.csv"')])


@route.get(
    "/live.js",
    access=PUBLIC,
    media_type="text/javascript; charset=utf-8",
    limit=None,
    ignores_unknown_query=True,
    in_openapi=False,
)
async def script() -> Response[bytes]:
    """The browser's side: a page that includes it beats while it is looked at."""
    headers = [("cache-control", "public, max-age=3600"), ("cross-origin-resource-policy", "cross-origin")]
    return Response(SCRIPT, headers=headers)
