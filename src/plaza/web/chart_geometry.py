"""The geometry of SVG charts. They use attributes only: the content security policy allows no inline styles.

Every chart has a text or table with the same content beside it, so charts are hidden from screen readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

WIDTH: Final = 600
HEIGHT: Final = 120
MAX_SHARES: Final = 12


class Bar(NamedTuple):
    """One bar of a chart over time."""

    x: float
    y: float
    width: float
    height: float
    label: str  # shown on hover


class Share(NamedTuple):
    """One row of a bar chart: a name, its count, and the length of its bar in percent."""

    name: str
    total: int
    length: float


def time_bars(values: Mapping[int, tuple[int, str]], positions: int) -> list[Bar]:
    """Bars over time, from the value and label of each position. A position without a value stays empty."""
    maximum = max((value for value, _ in values.values()), default=0) or 1
    step = WIDTH / positions
    return [
        Bar(
            round(position * step + step * 0.1, 1),
            round(HEIGHT - value / maximum * (HEIGHT - 8), 1),
            round(step * 0.8, 1),
            round(value / maximum * (HEIGHT - 8), 1),
            label,
        )
        for position, (value, label) in values.items()
    ]


def largest_shares(counts: Mapping[str, int]) -> list[Share]:
    """The largest counts, the largest first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_SHARES]
    top = max(counts.values(), default=0) or 1
    return [Share(name, count, round(100 * count / top, 1)) for name, count in ordered]
