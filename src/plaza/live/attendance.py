"""Who was there, when and for how long, as a table that a spreadsheet opens. It holds no addresses."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from plaza.live.history import ViewingSession
from plaza.live.viewing_sessions import ViewingSessions

COLUMNS = ("viewer", "session", "location", "joined", "left", "minutes")
ROWS_A_PIECE = 200

# A spreadsheet would take a cell that begins so, or so in full width, for a formula and run it. In half the world
# a semicolon begins a new cell too, quoted or not.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")


async def table(viewings: ViewingSessions, event: str) -> AsyncIterator[str]:
    """CSV, in pieces, a row per viewing session; `left` is empty while it goes on."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    async for viewing in viewings.of(event):
        rows.append(_row(viewing))
        if len(rows) >= ROWS_A_PIECE:
            yield _text(rows)
            rows = []
    yield _text(rows)


def _row(viewing: ViewingSession) -> tuple[str, ...]:
    return (
        _safe(viewing.viewer),
        _safe(viewing.session),
        _safe(viewing.location),
        _moment(viewing.started_at),
        "" if viewing.under_way else _moment(viewing.ended_at),
        f"{(viewing.ended_at - viewing.started_at) / 60_000:.2f}",
    )


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _safe(text: str) -> str:
    return _FORMULA.sub(r"\1'", text)


def _text(rows: list[tuple[str, ...]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()
