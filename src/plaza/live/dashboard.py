"""`plaza live EVENT`: the audience of an event on a terminal."""

from __future__ import annotations

import asyncio
from collections import deque

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live as Screen
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plaza.core.errors import Unavailable
from plaza.live.model import LiveFigures
from plaza.live.statistics import AudienceFigures

BARS = " ▁▂▃▄▅▆▇█"
SPARKLINE_SECONDS = 60
MAX_ROWS = 8


async def show(
    figures: AudienceFigures, event: str, console: Console, *, once: bool, every_seconds: float = 1.0
) -> None:
    """Draw the figures every second until interrupted, or once.

    While Valkey is unavailable the last figures stay on the screen, with the error below them.
    """
    now = await figures.live(event)
    counts: deque[int] = deque([now.viewer_count], maxlen=SPARKLINE_SECONDS)
    if once:
        console.print(draw(event, now, counts))
        return
    with Screen(draw(event, now, counts), console=console, auto_refresh=False, screen=True) as screen:
        while True:
            await asyncio.sleep(every_seconds)
            problem = ""
            try:
                now = await figures.live(event)
                counts.append(now.viewer_count)
            except Unavailable as error:
                problem = str(error)
            screen.update(draw(event, now, counts, problem), refresh=True)


def draw(event: str, now: LiveFigures, counts: deque[int], problem: str = "") -> Panel:
    head = Table.grid(padding=(0, 4))
    head.add_row(*(Text(f"{value:,}", style="bold") for value in _headline(now).values()))
    head.add_row(*(Text(name, style="dim") for name in _headline(now)))
    tables = [
        _table("country", now.count_by_viewing_country),
        _table("group", now.count_by_user_group),
        _table("session", now.sessions),
    ]
    content = Group(head, "", Text(sparkline(counts), style="green"), "", Columns(tables))
    return Panel(content, title=Text(event), subtitle=Text(problem, style="red"), padding=(1, 2))


def _headline(now: LiveFigures) -> dict[str, int]:
    return {
        "watching now": now.viewer_count,
        "peak": now.max_concurrent,
        "attended": now.total_attended,
        "viewing sessions": now.total_login,
    }


def sparkline(counts: deque[int]) -> str:
    """Return the counts as one bar per second."""
    peak = max(counts, default=0)
    return "".join(BARS[round(n / peak * (len(BARS) - 1))] if peak else BARS[0] for n in counts)


def _table(title: str, counts: dict[str, int]) -> Table:
    table = Table(title, "viewers", box=None, header_style="dim")
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    for name, count in ordered[:MAX_ROWS]:
        table.add_row(Text(name), f"{count:,}")
    if len(ordered) > MAX_ROWS:
        table.add_row(
            Text(f"{len(ordered) - MAX_ROWS} more", style="dim"), f"{sum(n for _, n in ordered[MAX_ROWS:]):,}"
        )
    return table
