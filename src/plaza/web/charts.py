"""Charts as SVG, drawn by attributes alone: the content security policy allows no style in an element.

Each is a picture beside words or a table that say the same, so it is hidden from screen readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

WIDTH: Final = 600
HEIGHT: Final = 120
# As many as one takes in at a glance; the page's script shows as many.
SHARES: Final = 12


class Bar(NamedTuple):
    """One bar of a chart over time."""

    x: float
    y: float
    width: float
    height: float
    says: str  # to whoever points at it


class Share(NamedTuple):
    """One row of a chart of shares: a name, how many, and how long its bar is, of 100."""

    name: str
    number: int
    length: float


def columns(values: Mapping[int, tuple[int, str]], places: int) -> list[Bar]:
    """Bars over time, by place from the left, with what each says. A place that has none stays empty: time goes on."""
    most = max((value for value, _ in values.values()), default=0) or 1
    step = WIDTH / places
    return [
        Bar(
            round(place * step + step * 0.1, 1),
            round(HEIGHT - value / most * (HEIGHT - 8), 1),
            round(step * 0.8, 1),
            round(value / most * (HEIGHT - 8), 1),
            says,
        )
        for place, (value, says) in values.items()
    ]


def shares(counts: Mapping[str, int]) -> list[Share]:
    """How something divides, the largest first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:SHARES]
    top = max(counts.values(), default=0) or 1
    return [Share(name, count, round(100 * count / top, 1)) for name, count in ordered]
