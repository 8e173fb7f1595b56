"""An event on a terminal: who is watching now, from where, and how it went in the last minutes."""

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
KEPT = 60
ROWS = 8


async def show(
    figures: AudienceFigures, event: str, console: Console, *, once: bool, every_seconds: float = 1.0
) -> None:
    """Draw it every second until interrupted, or once. While Valkey is away the last figures stay, and it is said."""
    now = await figures.live(event)
    past: deque[int] = deque([now.viewer_count], maxlen=KEPT)
    if once:
        console.print(draw(event, now, past))
        return
    with Screen(draw(event, now, past), console=console, auto_refresh=False, screen=True) as screen:
        while True:
            await asyncio.sleep(every_seconds)
            problem = ""
            try:
                now = await figures.live(event)
                past.append(now.viewer_count)
            except Unavailable as error:
                problem = str(error)
            screen.update(draw(event, now, past, problem), refresh=True)


def draw(event: str, now: LiveFigures, past: deque[int], problem: str = "") -> Panel:
    head = Table.grid(padding=(0, 4))
    head.add_row(*(Text(f"{value:,}", style="bold") for value in _numbers(now).values()))
    head.add_row(*(Text(name, style="dim") for name in _numbers(now)))
    tables = [
        _table("country", now.count_by_viewing_country),
        _table("group", now.count_by_user_group),
        _table("session", now.sessions),
    ]
    content = Group(head, "", Text(sparkline(past), style="green"), "", Columns(tables))
    return Panel(content, title=Text(event), subtitle=Text(problem, style="red"), padding=(1, 2))


def _numbers(now: LiveFigures) -> dict[str, int]:
    return {
        "watching now": now.viewer_count,
        "at most at once": now.max_concurrent,
        "came in all": now.total_attended,
        "viewing sessions": now.total_login,
    }


def sparkline(counts: deque[int]) -> str:
    """The last minute, a bar a second."""
    most = max(counts, default=0)
    return "".join(BARS[round(n / most * (len(BARS) - 1))] if most else BARS[0] for n in counts)


def _table(title: str, counts: dict[str, int]) -> Table:
    table = Table(title, "viewers", box=None, header_style="dim")
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    for name, count in ordered[:ROWS]:
        table.add_row(Text(name), f"{count:,}")
    if len(ordered) > ROWS:
        table.add_row(Text(f"{len(ordered) - ROWS} more", style="dim"), f"{sum(n for _, n in ordered[ROWS:]):,}")
    return table
