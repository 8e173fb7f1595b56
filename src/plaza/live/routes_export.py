"""The routes that export audiences: viewing sessions and five-minute records, each as CSV, JSON lines and Parquet."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from plaza.core.http.access import ADMIN
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.live.audience_export import MEDIA_TYPES, AudienceExport, ExportFormat, TimeRange
from plaza.live.model import EventId, SessionId, SessionOfAnotherEvent, UnixMs
from plaza.live.statistics import AudienceFigures

route = Routes("live", about="Audiences of live events and their sessions.")
EVENT_PATH = "/analytics/events/{event}"
OfSession = Annotated[SessionId | None, Meta(description="Only of this session of the event.")]


def _attachment(name: str, format: ExportFormat) -> list[tuple[str, str]]:
    return [("content-disposition", f'attachment; filename="{name}.{format}"')]


@route.get(
    EVENT_PATH + "/viewing-sessions.csv",
    access=ADMIN,
    media_type=MEDIA_TYPES["csv"],
    limit_first=True,
    raises=[SessionOfAnotherEvent],
)
async def download_viewing_sessions_csv(
    event: EventId,
    figures: AudienceFigures,
    export: AudienceExport,
    session: OfSession = None,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> Response[str]:
    """Download the viewing sessions that a time range touches as CSV."""
    if session:
        await figures.require_session(event, session)
    rows = export.viewing_sessions("csv", event, session, TimeRange(from_, to))
    return Response(rows, headers=_attachment("viewing-sessions", "csv"))


@route.get(
    EVENT_PATH + "/viewing-sessions.jsonl",
    access=ADMIN,
    media_type=MEDIA_TYPES["jsonl"],
    limit_first=True,
    raises=[SessionOfAnotherEvent],
)
async def download_viewing_sessions_jsonl(
    event: EventId,
    figures: AudienceFigures,
    export: AudienceExport,
    session: OfSession = None,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> Response[bytes]:
    """Download the viewing sessions that a time range touches as JSON lines."""
    if session:
        await figures.require_session(event, session)
    rows = export.viewing_sessions("jsonl", event, session, TimeRange(from_, to))
    return Response(rows, headers=_attachment("viewing-sessions", "jsonl"))


@route.get(
    EVENT_PATH + "/viewing-sessions.parquet",
    access=ADMIN,
    media_type=MEDIA_TYPES["parquet"],
    limit_first=True,
    raises=[SessionOfAnotherEvent],
)
async def download_viewing_sessions_parquet(
    event: EventId,
    figures: AudienceFigures,
    export: AudienceExport,
    session: OfSession = None,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> Response[bytes]:
    """Download the viewing sessions that a time range touches as a Parquet file."""
    if session:
        await figures.require_session(event, session)
    rows = export.viewing_sessions("parquet", event, session, TimeRange(from_, to))
    return Response(rows, headers=_attachment("viewing-sessions", "parquet"))


@route.get(
    EVENT_PATH + "/records.csv",
    access=ADMIN,
    media_type=MEDIA_TYPES["csv"],
    limit_first=True,
    raises=[SessionOfAnotherEvent],
)
async def download_records_csv(
    event: EventId,
    figures: AudienceFigures,
    export: AudienceExport,
    session: OfSession = None,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> Response[str]:
    """Download the five-minute records of a time range as CSV."""
    if session:
        await figures.require_session(event, session)
    rows = export.records("csv", event, session, TimeRange(from_, to))
    return Response(rows, headers=_attachment("records", "csv"))


@route.get(
    EVENT_PATH + "/records.jsonl",
    access=ADMIN,
    media_type=MEDIA_TYPES["jsonl"],
    limit_first=True,
    raises=[SessionOfAnotherEvent],
)
async def download_records_jsonl(
    event: EventId,
    figures: AudienceFigures,
    export: AudienceExport,
    session: OfSession = None,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> Response[bytes]:
    """Download the five-minute records of a time range as JSON lines."""
    if session:
        await figures.require_session(event, session)
    rows = export.records("jsonl", event, session, TimeRange(from_, to))
    return Response(rows, headers=_attachment("records", "jsonl"))


@route.get(
    EVENT_PATH + "/records.parquet",
    access=ADMIN,
    media_type=MEDIA_TYPES["parquet"],
    limit_first=True,
    raises=[SessionOfAnotherEvent],
)
async def download_records_parquet(
    event: EventId,
    figures: AudienceFigures,
    export: AudienceExport,
    session: OfSession = None,
    from_: UnixMs | None = None,
    to: UnixMs | None = None,
) -> Response[bytes]:
    """Download the five-minute records of a time range as a Parquet file."""
    if session:
        await figures.require_session(event, session)
    rows = export.records("parquet", event, session, TimeRange(from_, to))
    return Response(rows, headers=_attachment("records", "parquet"))
