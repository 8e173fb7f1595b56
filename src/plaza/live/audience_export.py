"""Exports of a time range as CSV, JSON lines and Parquet: viewing sessions and five-minute records, without addresses.

Rows are read in pages and sent as they are read, so memory is bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct, convert, json

from plaza.core import csv_text, parquet
from plaza.core.csv_text import iso_time, to_csv, without_formula
from plaza.core.parquet import ColumnType, ParquetColumn, write_parquet
from plaza.live.audience_breakdown import require_span
from plaza.live.statistics import AudienceFigures
from plaza.live.viewing_sessions import ViewingSessions

ExportFormat = Literal["csv", "jsonl", "parquet"]
ExportFile = Literal[
    "viewing-sessions.csv",
    "viewing-sessions.jsonl",
    "viewing-sessions.parquet",
    "records.csv",
    "records.jsonl",
    "records.parquet",
]
JSON_LINES: Final = "application/x-ndjson"
MEDIA_TYPES: Final[dict[ExportFormat, str]] = {
    "csv": csv_text.MEDIA_TYPE,
    "jsonl": JSON_LINES,
    "parquet": parquet.MEDIA_TYPE,
}
ROWS_PER_CHUNK: Final = 200

VIEWING_COLUMNS: Final = (
    ParquetColumn("viewer", ColumnType.TEXT),
    ParquetColumn("session", ColumnType.TEXT),
    ParquetColumn("location", ColumnType.TEXT),
    ParquetColumn("started_at", ColumnType.TIME_MS),
    ParquetColumn("ended_at", ColumnType.TIME_MS),
    ParquetColumn("under_way", ColumnType.FLAG),
)
RECORD_COLUMNS: Final = (
    ParquetColumn("at", ColumnType.TIME_MS),
    ParquetColumn("viewers", ColumnType.INTEGER),
    ParquetColumn("countries", ColumnType.TEXT),
    ParquetColumn("groups", ColumnType.TEXT),
)
Row = Sequence[Any]


class TimeRange(Struct, frozen=True):
    """From and to in Unix milliseconds, both included; None for no limit."""

    from_ms: int | None
    to_ms: int | None


class AudienceExport:
    """Streams rows of an event or one of its sessions."""

    def __init__(self, viewing_sessions: ViewingSessions, figures: AudienceFigures) -> None:
        self._viewing_sessions = viewing_sessions
        self._figures = figures

    async def read(
        self, file: ExportFile, event: str, session: str | None, span: TimeRange
    ) -> AsyncIterator[str | bytes]:
        """Return the content of a file. Refuses a session of another event."""
        if session:
            await self._figures.require_session(event, session)
        noun, _, extension = file.partition(".")
        rows = self.records if noun == "records" else self.viewing_sessions
        return rows(convert(extension, ExportFormat), event, session, span)

    def viewing_sessions(
        self, format: ExportFormat, event: str, session: str | None, span: TimeRange
    ) -> AsyncIterator[str | bytes]:
        """Return the viewing sessions that a time range touches."""
        require_span(span.from_ms, span.to_ms)
        return _encode(format, VIEWING_COLUMNS, self._viewing_rows(event, session, span))

    def records(
        self, format: ExportFormat, event: str, session: str | None, span: TimeRange
    ) -> AsyncIterator[str | bytes]:
        """Return the five-minute records of a time range, oldest first."""
        require_span(span.from_ms, span.to_ms)
        return _encode(format, RECORD_COLUMNS, self._record_rows(event, session or "", span))

    async def _viewing_rows(self, event: str, session: str | None, span: TimeRange) -> AsyncIterator[Row]:
        async for viewing in self._viewing_sessions.iterate(event, session):
            begun = span.to_ms is None or viewing.started_at <= span.to_ms
            if begun and (span.from_ms is None or viewing.under_way or viewing.ended_at >= span.from_ms):
                yield (
                    viewing.viewer,
                    viewing.session,
                    viewing.location,
                    viewing.started_at,
                    viewing.ended_at,
                    viewing.under_way,
                )

    async def _record_rows(self, event: str, session: str, span: TimeRange) -> AsyncIterator[Row]:
        async for record in self._figures.breakdown.iterate_records(event, session, span.from_ms or 0, span.to_ms):
            yield (
                record.timestamp,
                record.viewer_count,
                _counts_text(record.count_by_viewing_country),
                _counts_text(record.count_by_user_group),
            )


def _counts_text(counts: dict[str, int]) -> str:
    return json.encode(dict(sorted(counts.items()))).decode()


def _encode(
    format: ExportFormat, columns: Sequence[ParquetColumn], rows: AsyncIterator[Row]
) -> AsyncIterator[str | bytes]:
    if format == "parquet":
        return write_parquet(columns, rows)
    return _csv(columns, rows) if format == "csv" else _json_lines(columns, rows)


async def _csv(columns: Sequence[ParquetColumn], rows: AsyncIterator[Row]) -> AsyncIterator[str]:
    cells: list[Callable[[Any], str]] = [_CSV_CELLS[column.type] for column in columns]
    chunk: list[Sequence[str]] = [[column.name for column in columns]]
    async for row in rows:
        chunk.append([cell(value) for cell, value in zip(cells, row, strict=True)])
        if len(chunk) >= ROWS_PER_CHUNK:
            yield to_csv(chunk)
            chunk = []
    yield to_csv(chunk)


_CSV_CELLS: Final[dict[ColumnType, Callable[[Any], str]]] = {
    ColumnType.TEXT: without_formula,
    ColumnType.TIME_MS: iso_time,
    ColumnType.INTEGER: str,
    ColumnType.FLAG: lambda value: "1" if value else "0",
}


async def _json_lines(columns: Sequence[ParquetColumn], rows: AsyncIterator[Row]) -> AsyncIterator[bytes]:
    names, encoder, chunk = [column.name for column in columns], json.Encoder(), bytearray()
    async for row in rows:
        chunk += encoder.encode(dict(zip(names, row, strict=True))) + b"\n"
        if len(chunk) >= 16_384:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)
