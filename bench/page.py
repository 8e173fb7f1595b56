"""Pages of docs/ that show the stored run of a benchmark, each between two markers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/performance.md"
LOAD_BEFORE = os.getloadavg()[0]


@dataclass(frozen=True)
class Check:
    """A figure that is not a ratio to a peer, with its goal."""

    name: str
    figures: str
    goal: str
    met: bool

    @property
    def verdict(self) -> str:
        return "met" if self.met else "not met"


def store_section(name: str, markdown: str, page: Path = PAGE) -> None:
    """Replace what a page shows of this benchmark."""
    begin, end = f"<!-- {name}: written by `python -m bench {name} --store` -->\n", f"<!-- end of {name} -->\n"
    before, marker, rest = page.read_text().partition(begin)
    _, end_marker, after = rest.partition(end)
    assert marker, begin
    assert end_marker, end
    date = time.strftime("%Y-%m-%d", time.gmtime())
    page.write_text(f"{before}{begin}{date}, load average before the run {LOAD_BEFORE:.1f}:\n\n{markdown}{end}{after}")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
