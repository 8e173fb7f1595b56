"""`plaza live`: show the audience of an event, or simulate one."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from plaza.commands.base import add_command, with_plaza, with_plaza_logged
from plaza.commands.progress_line import ProgressLine
from plaza.core.errors import Invalid

if TYPE_CHECKING:
    from plaza.app import Plaza
    from plaza.commands.base import Commands
    from plaza.live.simulation import SimulationResult


def add_commands(commands: Commands) -> None:
    live = add_command(
        commands,
        "live",
        _live,
        "Show the audience of an event on this terminal. `plaza live simulate --event E` simulates an audience in the "
        "minutes up to now.",
        "plaza live simulate --event keynote --viewers 10000 --minutes 10 --speed 60 && plaza live keynote",
    )
    live.add_argument("what", metavar="EVENT|simulate", help="the event to show, or the word simulate")
    live.add_argument("--once", action="store_true", help="print the figures once instead of every second")
    live.add_argument("--event", default="demo", help="simulate: the event (demo)")
    live.add_argument("--viewers", type=int, default=1000, help="simulate: number of viewers (1000)")
    live.add_argument("--minutes", type=float, default=10, help="simulate: duration in minutes, until now (10)")
    live.add_argument(
        "--speed", type=float, default=60, help="simulate: speed relative to real time; 0: as fast as possible (60)"
    )
    live.add_argument("--seed", type=int, default=0, help="simulate: a different number gives a different audience (0)")


def _live(given: argparse.Namespace) -> int:
    from plaza.live.model import is_valid_id

    if not is_valid_id(given.event if given.what == "simulate" else given.what):
        raise Invalid("must be 1 to 128 characters without # { }", field="event")
    return _simulate(given) if given.what == "simulate" else _show(given)


def _show(given: argparse.Namespace) -> int:
    from rich.console import Console

    from plaza.live.dashboard import show
    from plaza.live.statistics import AudienceFigures

    console = Console()
    once = given.once or not console.is_terminal
    with_plaza(lambda plaza: show(plaza.get(AudienceFigures), given.what, console, once=once))
    return 0


def _simulate(given: argparse.Namespace) -> int:

    from plaza.live.simulation import AudienceSimulation

    if given.viewers < 1 or given.minutes <= 0 or given.speed < 0:
        raise Invalid("viewers and minutes must be greater than 0, speed must not be negative", field="simulate")
    with ProgressLine() as line:

        def show(share: float) -> None:
            line.show(f"{given.event}, minutes", share * given.minutes, given.minutes)

        def run(plaza: Plaza) -> Awaitable[SimulationResult]:
            audience = AudienceSimulation(
                plaza.core.functions,
                plaza.core.settings,
                given.event,
                viewers=given.viewers,
                minutes=given.minutes,
                seed=given.seed,
            )
            return audience.run(plaza.core.clock, given.speed, show)

        done = with_plaza_logged(run, "live simulate", given.event)
    print(f"{done.viewers:,} viewers, {done.beats:,} heartbeats; {done.left:,} left, {done.vanished:,} disappeared.")
    return 0
