"""CSV text that spreadsheets open safely."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

MEDIA_TYPE = "text/csv; charset=utf-8"

# A spreadsheet runs a cell that starts with one of these (also in full width) as a formula. In many countries a
# semicolon starts a new cell, even inside quotes.
_FORMULA_START = re.compile(r"(^|;)(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")


def without_formula(text: str) -> str:
    """Return a text that no spreadsheet runs as a formula."""
    return _FORMULA_START.sub(r"\1'", text)


def iso_time(ms: int) -> str:
    """Return Unix milliseconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_csv(rows: Iterable[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()
