"""Moments, spans and sizes, as operators read them. Times are UTC, as those in the log are."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

_TICKS: Final = re.compile(r"`([^`]+)`")


def figure(number: float | None) -> str:
    """`1,204.5`, `3`; a dash for none: as the page's script writes it."""
    return "–" if number is None else f"{number:,.2f}".removesuffix("0").removesuffix(".0")


def utc(ms: float) -> str:
    """`2026-12-06 14:05:09`."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def span(ms: float) -> str:
    """`40 ms`, `3.2 s`, `12 min`, `5 h`, `3 d`."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    for size, word in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * size:
            return f"{ms / size:.0f} {word}"
    return f"{ms / 1_000:.1f} s" if ms < 10_000 else f"{ms / 1_000:.0f} s"


def ticks(text: str) -> Markup:
    """A sentence of the catalogue, with what stands in back ticks as code."""
    return Markup(_TICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 escaped before


def size(count: float) -> str:
    """Bytes: `812 B`, `3.4 kB`, `1.2 GB`."""
    for unit, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {word}"
    return f"{count:.0f} B"
