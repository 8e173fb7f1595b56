"""The HTTP routes of `live`. Viewers send heartbeats; figures are for admins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.resources import files

from plaza.core import csv_text
from plaza.core.auth import Actor
from plaza.core.errors import NotFound, TooFast
from plaza.core.http.access import ADMIN, PUBLIC, VIEWER
from plaza.core.http.request import Request
from plaza.core.http.responses import EVENTS, Response, ServerSentEvent
from plaza.core.http.routes import Routes
from plaza.live import attendance
from plaza.live.heartbeats import LiveService
from plaza.live.history import AudienceHistory
from plaza.live.last_seen_report import HeartbeatReport, HeartbeatReports, ReportRequest
from plaza.live.model import (
    AudienceStatistics,
    EventDeclaration,
    EventId,
    EventOverview,
    EventUndeclared,
    Heartbeat,
    HeartbeatResult,
    Id,
    LeaveRequest,
    LeaveResult,
    LiveEvent,
    LiveFigures,
    SessionId,
    SessionOfAnotherEvent,
    SessionUndeclared,
    StatisticsRecords,
    TooManyEvents,
    TooManyPlaces,
    UnixMs,
    ViewerCount,
    ViewingStats,
)
from plaza.live.player_reports import AudienceSources, PlayerReports, QualityReport
from plaza.live.retention import EventComparison, EventIds, Minutes, Retention, RetentionCurve, SessionComparison
from plaza.live.statistics import AudienceFigures
from plaza.live.stream import FigureStreams
from plaza.live.viewers import ViewerAuthenticator, ViewerToken
from plaza.live.viewing_sessions import ViewingSessions

route = Routes("live", about="Audiences of live events and their sessions.")
EVENT_PATH = "/analytics/events/{event}"
SESSION_PATH = EVENT_PATH + "/sessions/{session}"
SCRIPT = files("plaza.live").joinpath("live.js").read_bytes()


@route.post("/analytics/viewer-token", access=PUBLIC, status=201, idempotent=True, limit="viewer")
async def create_viewer_token(viewers: ViewerAuthenticator) -> ViewerToken:
    """Create a token for a viewer without an account. It is valid for heartbeats only."""
    return viewers.tokens.issue()


@route.put(
    EVENT_PATH,
    access=ADMIN,
    logged_fields=("title", "starts_at"),
    raises=[SessionOfAnotherEvent, TooManyPlaces],
    example={"title": "Launch", "sessions": ["keynote"], "groups": ["press"], "starts_at": 1_796_572_800_000},
)
async def declare_event(event: EventId, body: EventDeclaration, live: LiveService) -> LiveEvent:
    """Declare an event, or change its title, time and description and add sessions to it."""
    return await live.declare(event, body)


@route.get(EVENT_PATH, access=ADMIN, raises=[NotFound])
async def get_event(event: EventId, live: LiveService) -> LiveEvent:
    """Get an event with its title and sessions, declared or seen."""
    return await live.get_event(event)


@route.delete(SESSION_PATH, access=ADMIN, status=204, raises=[NotFound])
async def delete_event_session(event: EventId, session: SessionId, live: LiveService, history: AudienceHistory) -> None:
    """Delete a session of an event with all its figures."""
    await history.delete_session(event, session)
    if not await live.delete_session(event, session):
        raise NotFound("This event has no such session.")


@route.delete(EVENT_PATH + "/groups/{group}", access=ADMIN, status=204, raises=[NotFound])
async def delete_event_group(event: EventId, group: Id, live: LiveService) -> None:
    """Delete a group of an event and its sessions. Its viewers stay."""
    if not await live.delete_group(event, group):
        raise NotFound("This event has no such group.")


@route.post(
    EVENT_PATH + "/heartbeat",
    access=VIEWER,
    limit=None,
    raises=[EventUndeclared, SessionUndeclared, SessionOfAnotherEvent, TooManyEvents, TooManyPlaces, TooFast],
    example={"location": "main-stage", "session_id": "keynote", "groups": ["press"]},
)
async def send_heartbeat(
    actor: Actor, request: Request, event: EventId, body: Heartbeat, viewers: ViewerAuthenticator, live: LiveService
) -> HeartbeatResult:
    """Send a heartbeat. Send the next one in `next_heartbeat_ms`. One round trip."""
    return await live.beat(await viewers.get_viewer(actor, request), event, body)


@route.post(
    EVENT_PATH + "/leave",
    access=VIEWER,
    limit=None,
    raises=[SessionOfAnotherEvent, TooFast],
    example={"location": "main-stage", "session_id": "keynote"},
)
async def leave_event(
    actor: Actor, request: Request, event: EventId, body: LeaveRequest, viewers: ViewerAuthenticator, live: LiveService
) -> LeaveResult:
    """End a viewing session now. One round trip."""
    return await live.leave(await viewers.get_viewer(actor, request), event, body)


@route.get(EVENT_PATH + "/viewers/active-count", access=ADMIN)
async def count_active_viewers(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Count the viewers alive now."""
    return ViewerCount(await figures.alive(event))


@route.get(EVENT_PATH + "/viewers/count", access=ADMIN)
async def count_viewers(
    event: EventId, figures: AudienceFigures, from_: UnixMs | None = None, to: UnixMs | None = None
) -> ViewerCount:
    """Count the distinct viewers in a time span, by default the last five minutes."""
    return ViewerCount(await figures.seen(event, from_, to))


@route.get(EVENT_PATH + "/viewers/all-time-active-count", access=ADMIN)
async def count_all_time_viewers(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Count the distinct viewers ever seen."""
    return ViewerCount(await figures.totals.count_seen(event))


@route.get(EVENT_PATH + "/viewers/total-attended-count", access=ADMIN)
async def count_attended_viewers(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Count the distinct viewers who ever attended."""
    return ViewerCount((await figures.totals.get(event)).attended)


@route.get(EVENT_PATH + "/viewers/max-concurrent-count", access=ADMIN)
async def get_max_concurrent_viewers(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Get the most viewers alive at once."""
    return ViewerCount((await figures.totals.get(event)).peak)


@route.get(EVENT_PATH + "/viewers/total-login-count", access=ADMIN)
async def count_viewing_sessions(event: EventId, figures: AudienceFigures) -> ViewerCount:
    """Count the viewing sessions begun."""
    return ViewerCount((await figures.totals.get(event)).logins)


@route.get(SESSION_PATH + "/viewers/active-count", access=ADMIN, raises=[SessionOfAnotherEvent])
async def count_active_session_viewers(event: EventId, session: SessionId, figures: AudienceFigures) -> ViewerCount:
    """Count the viewers of a session alive now."""
    await figures.require_session(event, session)
    return ViewerCount(await figures.session_alive(session))


@route.get(SESSION_PATH + "/viewers/total-attended-count", access=ADMIN, raises=[SessionOfAnotherEvent])
async def count_attended_session_viewers(event: EventId, session: SessionId, figures: AudienceFigures) -> ViewerCount:
    """Count the distinct viewers who ever attended a session."""
    await figures.require_session(event, session)
    return ViewerCount((await figures.totals.get(event, session)).attended)


@route.get(SESSION_PATH + "/viewers/max-concurrent-count", access=ADMIN, raises=[SessionOfAnotherEvent])
async def get_max_concurrent_session_viewers(
    event: EventId, session: SessionId, figures: AudienceFigures
) -> ViewerCount:
    """Get the most viewers of a session alive at once."""
    await figures.require_session(event, session)
    return ViewerCount((await figures.totals.get(event, session)).peak)


@route.get(SESSION_PATH + "/viewing-stats", access=ADMIN, in_openapi=False)
@route.get(SESSION_PATH + "/viewers/viewing-stats", access=ADMIN, raises=[SessionOfAnotherEvent])
async def get_session_viewing_stats(event: EventId, session: SessionId, figures: AudienceFigures) -> ViewingStats:
    """Get the minutes watched by the viewers of a session: mean, median and p90."""
    await figures.require_session(event, session)
    return await figures.viewing_stats(event, session)


@route.get(EVENT_PATH + "/statistics/live", access=ADMIN)
async def get_live_statistics(event: EventId, figures: AudienceFigures) -> AudienceStatistics:
    """Get the current audience by group and country."""
    return await figures.breakdown.for_event(event)


@route.get(SESSION_PATH + "/statistics/live", access=ADMIN, raises=[SessionOfAnotherEvent])
async def get_live_session_statistics(
    event: EventId, session: SessionId, figures: AudienceFigures
) -> AudienceStatistics:
    """Get the current audience of a session by group and country."""
    await figures.require_session(event, session)
    return await figures.breakdown.for_session(session)


@route.get(EVENT_PATH + "/statistics", access=ADMIN, limit_first=True)
async def list_statistics(
    event: EventId, figures: AudienceFigures, from_: UnixMs | None = None, to: UnixMs | None = None
) -> StatisticsRecords:
    """List the audience at the end of each five minutes of a time span, by default the last day."""
    return StatisticsRecords(await figures.breakdown.records(event, "", from_, to))


@route.get(SESSION_PATH + "/statistics", access=ADMIN, limit_first=True, raises=[SessionOfAnotherEvent])
async def list_session_statistics(
    event: EventId,
    session: SessionId,
    figures: AudienceFigures,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> StatisticsRecords:
    """List a session's audience at the end of each five minutes of a time span, by default the last day."""
    await figures.require_session(event, session)
    return StatisticsRecords(await figures.breakdown.records(event, session, from_, to))


@route.get(EVENT_PATH + "/overview", access=ADMIN, limit_first=True)
async def get_event_overview(event: EventId, figures: AudienceFigures) -> EventOverview:
    """Get all figures of an event and its sessions."""
    return await figures.overview(event)


@route.get(EVENT_PATH + "/retention", access=ADMIN, limit_first=True)
async def get_retention(event: EventId, retention: Retention, minutes: Minutes = 60) -> RetentionCurve:
    """Get the share of viewers who are still watching after n minutes, and when they drop off and come back."""
    return await retention.curve(event, None, minutes)


@route.get(SESSION_PATH + "/retention", access=ADMIN, limit_first=True, raises=[SessionOfAnotherEvent])
async def get_session_retention(
    event: EventId, session: SessionId, figures: AudienceFigures, retention: Retention, minutes: Minutes = 60
) -> RetentionCurve:
    """Get the share of a session's viewers who are still watching after n minutes."""
    await figures.require_session(event, session)
    return await retention.curve(event, session, minutes)


@route.get(EVENT_PATH + "/comparison", access=ADMIN, limit_first=True)
async def list_compared_sessions(event: EventId, retention: Retention) -> SessionComparison:
    """List the sessions of an event side by side, those with the most viewers first."""
    return await retention.compare_sessions(event)


@route.get("/analytics/comparison", access=ADMIN, limit_first=True)
async def list_compared_events(events: EventIds, retention: Retention) -> EventComparison:
    """List the events in `events=a,b` side by side."""
    return await retention.compare_events([event for event in events.split(",") if event])


@route.get(EVENT_PATH + "/quality", access=ADMIN)
async def get_playback_quality(event: EventId, reports: PlayerReports) -> QualityReport:
    """Get start times, buffering and errors that players reported, by country."""
    return await reports.quality(event)


@route.get(EVENT_PATH + "/sources", access=ADMIN)
async def get_audience_sources(event: EventId, reports: PlayerReports) -> AudienceSources:
    """Get the viewing sessions by device and by referring site, if the server counts them."""
    return await reports.sources(event)


@route.post(EVENT_PATH + "/heartbeat-report", access=ADMIN, limit="read", example={"user_ids": ["ana"]})
async def report_heartbeats(event: EventId, body: ReportRequest, reports: HeartbeatReports) -> HeartbeatReport:
    """Report when and where viewers were last seen: the given ones, or all who are alive."""
    return await reports.report(event, body)


@route.get(EVENT_PATH + "/stream", access=ADMIN, media_type=EVENTS)
async def stream_event_figures(
    event: EventId, request: Request, streams: FigureStreams
) -> Response[ServerSentEvent[LiveFigures]]:
    """Stream the live figures every second as server-sent events. `Last-Event-ID` resumes."""
    return Response(streams.subscribe(event, request.headers.get("last-event-id")))


@route.get(EVENT_PATH + "/attendance.csv", access=ADMIN, media_type=csv_text.MEDIA_TYPE, limit_first=True)
async def download_attendance(event: EventId, viewing_sessions: ViewingSessions) -> Response[str]:
    """Download the attendance table: one row per viewing session, without addresses."""
    chunks: AsyncIterator[str] = attendance.csv_chunks(viewing_sessions, event)
    return Response(chunks, headers=[("content-disposition", 'attachment; filename="attendance.csv"')])


@route.get(
    "/live.js",
    access=PUBLIC,
    media_type="text/javascript; charset=utf-8",
    limit=None,
    ignores_unknown_query=True,
    in_openapi=False,
)
async def get_heartbeat_script() -> Response[bytes]:
    """Get the script that sends heartbeats while a page is visible."""
    headers = [("cache-control", "public, max-age=3600"), ("cross-origin-resource-policy", "cross-origin")]
    return Response(SCRIPT, headers=headers)
