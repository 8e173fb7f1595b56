"""Numbers, durations, sizes and times for operator pages. Times are UTC, as in the log."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from plaza.web.text_html import utc_time

_CODE: Final = re.compile(r"`([^`]+)`")


def format_number(number: float | None) -> str:
    """`1,204.5`, `3`; a dash for None. The page's script formats numbers in the same way."""
    return "–" if number is None else f"{number:,.2f}".removesuffix("0").removesuffix(".0")


def format_utc(ms: float) -> str:
    """`2026-12-06 14:05:09`."""
    return f"{utc_time(ms):%Y-%m-%d %H:%M:%S}"


def day_of_month(day: int) -> int:
    """`17`, of a day that is counted from 1970."""
    return datetime.fromtimestamp(day * 86_400, UTC).day


def format_duration(ms: float) -> str:
    """`40 ms`, `3.2 s`, `12 min`, `5 h`, `3 d`."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    for unit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * unit_ms:
            return f"{ms / unit_ms:.0f} {unit}"
    return f"{ms / 1_000:.1f} s" if ms < 10_000 else f"{ms / 1_000:.0f} s"


def code_spans(text: str) -> Markup:
    """A text as HTML, with the parts in backticks as `code` elements."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 escaped above


def format_bytes(size: float) -> str:
    """`812 B`, `3.4 kB`, `1.2 GB`."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"
