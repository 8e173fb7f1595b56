"""The attendance table as CSV: viewers, when they came and how long they watched. It has no addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator

from plaza.core.csv_text import iso_time, to_csv, without_formula
from plaza.live.history import ViewingSession
from plaza.live.viewing_sessions import ViewingSessions

COLUMNS = ("viewer", "session", "location", "joined", "left", "minutes")
ROWS_PER_CHUNK = 200


async def csv_chunks(viewing_sessions: ViewingSessions, event: str) -> AsyncIterator[str]:
    """Yield CSV text with one row per viewing session. `left` is empty while the session goes on."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    async for viewing in viewing_sessions.iterate(event):
        rows.append(_row(viewing))
        if len(rows) >= ROWS_PER_CHUNK:
            yield to_csv(rows)
            rows = []
    yield to_csv(rows)


def _row(viewing: ViewingSession) -> tuple[str, ...]:
    return (
        without_formula(viewing.viewer),
        without_formula(viewing.session),
        without_formula(viewing.location),
        iso_time(viewing.started_at),
        "" if viewing.under_way else iso_time(viewing.ended_at),
        f"{(viewing.ended_at - viewing.started_at) / 60_000:.2f}",
    )
