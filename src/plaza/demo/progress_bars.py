"""`plaza demo` on a terminal: a bar for each stage, how many records a second, and a line at the end."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from plaza.demo.loader import DemoLoader, LoadStage


async def make(loader: DemoLoader, seed: int, users: int, posts: int) -> str:
    """Make a community, and say what was done."""
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>9,.0f} records/s"),
        TimeRemainingColumn(),
    )
    begun = monotonic()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        bars = ProgressBars(bar)
        made = await loader.crowd(seed, users, posts, bars.advance)
    if not made.stages:
        return f"The community of seed {seed} with {users:,} people and {posts:,} posts is there already."
    seconds = max(monotonic() - begun, 0.001)
    things = ", ".join(f"{count:,} {name}" for name, count in made.stages.items())
    return f"{things}: {made.records:,} records in {seconds:,.1f} s, {made.records / seconds:,.0f} a second."


class ProgressBars:
    """A bar for each stage, from its first batch on. Its rate counts from the end of the stage before."""

    def __init__(self, bar: Progress, now: Callable[[], float] = monotonic) -> None:
        self._bar = bar
        self._now = now
        self._last = now()
        self._tasks: dict[str, tuple[TaskID, float]] = {}
        self._records: dict[str, int] = {}

    def advance(self, stage: LoadStage, things: int, records: int) -> None:
        if stage.name not in self._tasks:
            task = self._bar.add_task(stage.name, total=stage.count, rate=0.0)
            self._tasks[stage.name] = (task, self._last)
        task, begun = self._tasks[stage.name]
        self._records[stage.name] = self._records.get(stage.name, 0) + records
        self._last = self._now()
        rate = self._records[stage.name] / max(self._last - begun, 0.001)
        self._bar.update(task, advance=things, rate=rate)
