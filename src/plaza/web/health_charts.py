"""The charts of the health page: requests per second and response times, drawn from the history on the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from plaza.core.health_history import HealthHistory, HealthPoint, HistorySpan, merged
from plaza.web.chart_geometry import HEIGHT, WIDTH
from plaza.web.formatting import format_number
from plaza.web.partial_reads import PartialReads

# How many buckets of the history are one point of a chart, and one row of the table behind it.
POINT_BUCKETS: Final[dict[HistorySpan, int]] = {"hour": 1, "week": 6}
ROW_BUCKETS: Final[dict[HistorySpan, int]] = {"hour": 30, "week": 72}
LABELS: Final[dict[HistorySpan, str]] = {"hour": "1 h ago", "week": "7 days ago"}


class ChartLine(NamedTuple):
    """A line of a chart with the name of its figure."""

    name: str
    path: str


async def chart_context(history: HealthHistory, span: HistorySpan) -> dict[str, Any]:
    """Return the charts and their tables. They are empty while the history cannot be read. One round trip."""
    reads = PartialReads()
    buckets = await reads.read(history.buckets(span), history.empty_buckets(span))
    points = [bucket.point() for bucket in merged(buckets, POINT_BUCKETS[span])]
    rows = [bucket.point() for bucket in merged(buckets, ROW_BUCKETS[span])]
    busiest = max(point.requests_per_second for point in points)
    slowest = max((point.p99 or 0 for point in points), default=0)
    names = ("p50", "p95", "p99")
    return {
        "span": span,
        "missing": reads.missing,
        "start": LABELS[span],
        "requests": ChartLine("requests/s", _path([p.requests_per_second for p in points], busiest)),
        "requests_max": format_number(busiest),
        "latencies": [ChartLine(name, _path(_values(points, name), slowest)) for name in names],
        "latency_max": format_number(slowest),
        "rows": [row for row in reversed(rows) if row.requests_per_second] or rows[-1:],
        "updated": buckets[-1].at,
    }


def _values(points: Sequence[HealthPoint], name: str) -> list[float | None]:
    return [getattr(point, name) for point in points]


def _path(values: Sequence[float | None], maximum: float) -> str:
    """Return an SVG path. Where there is no value, the line has a gap; a value alone is a short line."""
    step, parts, is_down = WIDTH / max(len(values) - 1, 1), [], False
    for n, value in enumerate(values):
        if value is None:
            is_down = False
            continue
        x, y = min(n * step, WIDTH - 1), HEIGHT - 4 - value / (maximum or 1) * (HEIGHT - 12)
        parts.append(f"{'L' if is_down else 'M'}{x:.1f} {y:.1f}" + ("" if is_down else "h1"))
        is_down = True
    return "".join(parts)
