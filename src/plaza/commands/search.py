"""`plaza search …`: the search index."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command, with_plaza_logged
from plaza.commands.progress_line import ProgressLine

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    about = "Maintain the search index."
    search = commands.add_parser("search", help=about, description=about, epilog=SEE_HELP)
    subcommands = search.add_subparsers(title="commands", required=True, metavar="COMMAND")
    rebuild = "Rebuild the search index from source data, beside a running server. It resumes after an interruption."
    add_command(subcommands, "rebuild", _rebuild, rebuild, "plaza search rebuild")


def _rebuild(given: argparse.Namespace) -> int:
    from plaza.search.rebuild import IndexRebuild

    with ProgressLine() as line:
        indexed = with_plaza_logged(lambda plaza: plaza.get(IndexRebuild).run_or_resume(line.advance), "search rebuild")
    print("Indexed " + ", ".join(f"{count:,} {kind}" for kind, count in indexed.items()) + ".")
    return 0
