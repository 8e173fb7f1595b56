"""The attendance table as CSV: viewers, when they came and how long they watched. It has no addresses."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from plaza.live.history import ViewingSession
from plaza.live.viewing_sessions import ViewingSessions

COLUMNS = ("viewer", "session", "location", "joined", "left", "minutes")
ROWS_PER_CHUNK = 200

# A spreadsheet runs a cell that starts with one of these (also in full width) as a formula. In many countries a
# semicolon starts a new cell, even inside quotes.
_FORMULA_START = re.compile(r"(^|;)(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")


async def csv_chunks(viewing_sessions: ViewingSessions, event: str) -> AsyncIterator[str]:
    """Yield CSV text with one row per viewing session. `left` is empty while the session goes on."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    async for viewing in viewing_sessions.iterate(event):
        rows.append(_row(viewing))
        if len(rows) >= ROWS_PER_CHUNK:
            yield _to_csv(rows)
            rows = []
    yield _to_csv(rows)


def _row(viewing: ViewingSession) -> tuple[str, ...]:
    return (
        _without_formula(viewing.viewer),
        _without_formula(viewing.session),
        _without_formula(viewing.location),
        _iso_time(viewing.started_at),
        "" if viewing.under_way else _iso_time(viewing.ended_at),
        f"{(viewing.ended_at - viewing.started_at) / 60_000:.2f}",
    )


def _iso_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _without_formula(text: str) -> str:
    return _FORMULA_START.sub(r"\1'", text)


def _to_csv(rows: list[tuple[str, ...]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()
