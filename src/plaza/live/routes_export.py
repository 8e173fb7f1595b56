"""The routes that export audiences: viewing sessions and five-minute records, each as CSV, JSON lines and Parquet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from plaza.core.http.access import ADMIN
from plaza.core.http.responses import Response
from plaza.core.http.routes import Handler, Routes
from plaza.live.audience_export import MEDIA_TYPES, AudienceExport, ExportFile, ExportFormat, TimeRange
from plaza.live.model import EventId, SessionId, SessionOfAnotherEvent, UnixMs

route = Routes("live", about="Audiences of live events and their sessions.")


class ExportQuery(msgspec.Struct, frozen=True):
    session: Annotated[SessionId | None, Meta(description="Only of this session of the event.")] = None
    from_ms: UnixMs | None = msgspec.field(default=None, name="from")
    to_ms: UnixMs | None = msgspec.field(default=None, name="to")


def _get(file: ExportFile, format: ExportFormat) -> Callable[[Handler], Handler]:
    return route.get(
        f"/analytics/events/{{event}}/{file}",
        access=ADMIN,
        media_type=MEDIA_TYPES[format],
        limit_first=True,
        raises=[SessionOfAnotherEvent],
    )


async def _download(export: AudienceExport, file: ExportFile, event: str, query: ExportQuery) -> Response[Any]:
    rows = await export.read(file, event, query.session, TimeRange(query.from_ms, query.to_ms))
    return Response(rows, headers=[("content-disposition", f'attachment; filename="{file}"')])


@_get("viewing-sessions.csv", "csv")
async def download_viewing_sessions_csv(event: EventId, query: ExportQuery, export: AudienceExport) -> Response[str]:
    """Download the viewing sessions that a time range touches as CSV."""
    return await _download(export, "viewing-sessions.csv", event, query)


@_get("viewing-sessions.jsonl", "jsonl")
async def download_viewing_sessions_jsonl(
    event: EventId, query: ExportQuery, export: AudienceExport
) -> Response[bytes]:
    """Download the viewing sessions that a time range touches as JSON lines."""
    return await _download(export, "viewing-sessions.jsonl", event, query)


@_get("viewing-sessions.parquet", "parquet")
async def download_viewing_sessions_parquet(
    event: EventId, query: ExportQuery, export: AudienceExport
) -> Response[bytes]:
    """Download the viewing sessions that a time range touches as a Parquet file."""
    return await _download(export, "viewing-sessions.parquet", event, query)


@_get("records.csv", "csv")
async def download_records_csv(event: EventId, query: ExportQuery, export: AudienceExport) -> Response[str]:
    """Download the five-minute records of a time range as CSV."""
    return await _download(export, "records.csv", event, query)


@_get("records.jsonl", "jsonl")
async def download_records_jsonl(event: EventId, query: ExportQuery, export: AudienceExport) -> Response[bytes]:
    """Download the five-minute records of a time range as JSON lines."""
    return await _download(export, "records.jsonl", event, query)


@_get("records.parquet", "parquet")
async def download_records_parquet(event: EventId, query: ExportQuery, export: AudienceExport) -> Response[bytes]:
    """Download the five-minute records of a time range as a Parquet file."""
    return await _download(export, "records.parquet", event, query)
