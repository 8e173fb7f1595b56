"""The operators' page of one audience: retention, comparison of sessions and events, playback quality, exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.live.audience_export import MEDIA_TYPES, AudienceExport, ExportFile, ExportFormat, TimeRange
from plaza.live.model import EventId, SessionId
from plaza.live.player_reports import PlayerReports, QualityFigures
from plaza.live.retention import COMPARED_MINUTES, ComparedAudience, Retention, RetentionCurve
from plaza.live.schedule import EventSchedule
from plaza.live.statistics import AudienceFigures
from plaza.web import chart_geometry
from plaza.web.operator_navigation import operator_page
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes

page = PageRoutes()

CURVE_MINUTES: Final = 60
# Sessions and countries in the charts; the API has all.
MAX_ROWS: Final = 20
# Events side by side. Each takes a second for about 100,000 viewing sessions.
MAX_EVENTS: Final = 5


@page.get("/operator/live/audience", access=ADMIN)
async def show_audience(
    request: Request,
    site: PageResponses,
    schedule: EventSchedule,
    figures: AudienceFigures,
    retention: Retention,
    reports: PlayerReports,
    event: EventId,
    session: SessionId | None = None,
) -> Response[str]:
    """Show how long the viewers of an event stay, how well it plays, and how it compares."""
    visitor = await site.visitors.from_request(request)
    if session:
        await figures.require_session(event, session)
    report = await retention.report(event, session, CURVE_MINUTES)
    listed = [*await schedule.list_events(), *await schedule.list_undeclared()]
    titles = {each.id: each.title for each in listed}
    now = site.clock.now_ms()
    others = [each.id for each in listed if each.id != event and (each.starts_at or 0) <= now][: MAX_EVENTS - 1]
    events = [report.event, *(await retention.compare_events(others)).events]
    quality = await reports.quality(event)
    sources = await reports.sources(event)
    context: dict[str, Any] = {
        "event": event,
        "title": titles.get(event, event),
        "titles": titles,
        "session": session,
        "curve": report.curve,
        "curve_bars": _curve_bars(report.curve),
        "moves": [
            ("Left for good", _count_bars({each.minute: each.dropped for each in report.curve.minutes})),
            ("Came back", _count_bars({each.minute: each.rejoined for each in report.curve.minutes})),
        ],
        "compared": [
            ("session", "Sessions", report.sessions[:MAX_ROWS], _viewer_shares(report.sessions)),
            ("event", "Events", events, _viewer_shares(events, titles)),
        ],
        "compared_minutes": [str(minute) for minute in COMPARED_MINUTES],
        "quality": [
            ("All", quality.total),
            *((each.country, each) for each in quality.countries[:MAX_ROWS]),
            *((each.device, each) for each in quality.devices),
            *((each.referrer, each) for each in quality.referrers[:MAX_ROWS]),
        ],
        "quality_shares": [
            ("country", "By country", *_quality_shares({each.country or "": each for each in quality.countries})),
            ("device", "By device", *_quality_shares({each.device: each for each in quality.devices})),
            ("site", "By referring site", *_quality_shares({each.referrer: each for each in quality.referrers})),
        ],
        "sources": [
            ("device", "Devices", chart_geometry.largest_shares(sources.devices)),
            ("site", "Referring sites", chart_geometry.largest_shares(sources.referrers)),
        ],
    }
    return operator_page(request, site, visitor, "operator-audience.html", "Live", **context)


@page.get("/operator/live/audience/{file}", access=ADMIN, media_type="application/octet-stream", limit_first=True)
async def download_audience(
    export: AudienceExport, file: ExportFile, event: EventId, session: SessionId | None = None
) -> Response[bytes]:
    """Download the viewing sessions or the five-minute records of an event or a session."""
    return Response(
        await export.read(file, event, session, TimeRange(None, None)),
        media_type=MEDIA_TYPES[msgspec.convert(file.rpartition(".")[2], ExportFormat)],
        headers=[("content-disposition", f'attachment; filename="{file}"')],
    )


def _curve_bars(curve: RetentionCurve) -> list[chart_geometry.Bar]:
    """One bar per minute, as high as the share that is still watching."""
    values = {
        each.minute: (round(each.share * 1000), f"After {each.minute} min: {each.share:.0%}")
        for each in curve.minutes
        if each.share is not None
    }
    return chart_geometry.time_bars(values, CURVE_MINUTES + 1)


def _count_bars(counts: Mapping[int, int]) -> tuple[int, list[chart_geometry.Bar]]:
    """The highest count, and one bar per minute with any viewers."""
    values = {minute: (count, f"Minute {minute}: {count:,}") for minute, count in counts.items() if count}
    return max(counts.values(), default=0), chart_geometry.time_bars(values, CURVE_MINUTES + 1)


def _quality_shares(
    rows: Mapping[str, QualityFigures],
) -> tuple[list[chart_geometry.Share], list[chart_geometry.Share]]:
    """The times to start and of buffering that 95% of reports do not exceed, by name."""
    starts = {name: row.start_ms_p95 for name, row in rows.items() if row.start_ms_p95 is not None}
    buffering = {name: row.buffering_ms_p95 for name, row in rows.items() if row.buffering_ms_p95 is not None}
    return chart_geometry.largest_shares(starts), chart_geometry.largest_shares(buffering)


def _viewer_shares(rows: list[ComparedAudience], titles: Mapping[str, str] | None = None) -> list[chart_geometry.Share]:
    """The viewers of each session, or of each event by its title."""
    shares = chart_geometry.largest_shares({row.id: row.attended for row in rows})
    return [share._replace(name=(titles or {}).get(share.name, share.name)) for share in shares]
