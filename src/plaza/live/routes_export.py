"""The routes that export audiences: viewing sessions and five-minute records, each as CSV, JSON lines and Parquet."""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

import msgspec
from msgspec import Meta

from plaza.core.http.access import ADMIN
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.live.audience_export import MEDIA_TYPES, AudienceExport, ExportFile, ExportFormat, TimeRange
from plaza.live.model import EventId, SessionId, SessionOfAnotherEvent, UnixMs

route = Routes("live", about="Audiences of live events and their sessions.")


class ExportQuery(msgspec.Struct, frozen=True):
    session: Annotated[SessionId | None, Meta(description="Only of this session of the event.")] = None
    from_ms: UnixMs | None = msgspec.field(default=None, name="from")
    to_ms: UnixMs | None = msgspec.field(default=None, name="to")


# For the summaries of the routes.
_CONTENTS: Final = {
    "viewing-sessions": "the viewing sessions that a time range touches",
    "records": "the five-minute records of a time range",
}
_FORMATS: Final[dict[ExportFormat, str]] = {"csv": "CSV", "jsonl": "JSON lines", "parquet": "a Parquet file"}


def _add_download(file: ExportFile) -> None:
    noun, _, extension = file.partition(".")
    format = msgspec.convert(extension, ExportFormat)

    async def download(event: EventId, query: ExportQuery, export: AudienceExport) -> Response[Any]:
        rows = await export.read(file, event, query.session, TimeRange(query.from_ms, query.to_ms))
        return Response(rows, headers=[("content-disposition", f'attachment; filename="{file}"')])

    download.__name__ = f"download_{noun.replace('-', '_')}_{format}"
    download.__doc__ = f"Download {_CONTENTS[noun]} as {_FORMATS[format]}."
    download.__annotations__["return"] = Response[str] if format == "csv" else Response[bytes]
    route.get(
        f"/analytics/events/{{event}}/{file}",
        access=ADMIN,
        media_type=MEDIA_TYPES[format],
        limit_first=True,
        raises=[SessionOfAnotherEvent],
    )(download)


for _file in get_args(ExportFile):
    _add_download(_file)
