"""`plaza search …`: the search index."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command, with_plaza_logged

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    about = "Maintain the search index."
    search = commands.add_parser("search", help=about, description=about, epilog=SEE_HELP)
    subcommands = search.add_subparsers(title="commands", required=True, metavar="COMMAND")
    rebuild = "Rebuild the search index from source data, beside a running server. It resumes after an interruption."
    add_command(subcommands, "rebuild", _rebuild, rebuild, "plaza search rebuild")


def _rebuild(given: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from plaza.search.rebuild import IndexRebuild

    columns = (TextColumn("{task.description:<16}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=total)
            bar.update(tasks[step], advance=done)
            finished = bar.tasks[tasks[step]].completed
            bar.update(tasks[step], total=max(total, finished))

        indexed = with_plaza_logged(lambda plaza: plaza.get(IndexRebuild).run(show), "search rebuild")
    print("Indexed " + ", ".join(f"{count:,} {kind}" for kind, count in indexed.items()) + ".")
    return 0
