"""The output of `plaza demo`: a progress bar per stage with records per second, and a summary."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from plaza.demo.loader import DemoLoader, LoadStage


async def load_with_progress(loader: DemoLoader, seed: int, users: int, posts: int) -> str:
    """Load a community and return a summary."""
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>9,.0f} records/s"),
        TimeRemainingColumn(),
    )
    started = monotonic()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        bars = ProgressBars(bar)
        result = await loader.load_generated(seed, users, posts, bars.advance)
    if not result.stages:
        return f"The community of seed {seed} with {users:,} users and {posts:,} posts exists already."
    seconds = max(monotonic() - started, 0.001)
    counts = ", ".join(f"{count:,} {name}" for name, count in result.stages.items())
    return f"{counts}: {result.records:,} records in {seconds:,.1f} s, {result.records / seconds:,.0f} per second."


class ProgressBars:
    """One bar per stage, from its first batch on. The rate counts from the end of the previous stage."""

    def __init__(self, bar: Progress, now: Callable[[], float] = monotonic) -> None:
        self._bar = bar
        self._now = now
        self._last = now()
        self._tasks: dict[str, tuple[TaskID, float]] = {}
        self._records: dict[str, int] = {}

    def advance(self, stage: LoadStage, items_in: int, records: int) -> None:
        if stage.name not in self._tasks:
            task = self._bar.add_task(stage.name, total=stage.count, rate=0.0)
            self._tasks[stage.name] = (task, self._last)
        task, started = self._tasks[stage.name]
        self._records[stage.name] = self._records.get(stage.name, 0) + records
        self._last = self._now()
        rate = self._records[stage.name] / max(self._last - started, 0.001)
        self._bar.update(task, advance=items_in, rate=rate)
