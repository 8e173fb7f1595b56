"""`plaza demo`: sample data of any size."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import add_command, with_plaza_logged

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    demo = add_command(
        commands,
        "demo",
        _demo,
        "Add a sample community of any size to the existing data. The same seed creates the same data. If it is "
        "interrupted, run it again to continue; a second run changes nothing. Or switch the demo on or off.",
        "plaza demo --users 100000 --posts 1000000 --seed 7",
    )
    demo.add_argument("--users", type=int, default=1000, help="number of users (1000)")
    demo.add_argument("--posts", type=int, default=10000, help="number of posts (10000)")
    demo.add_argument("--seed", type=int, default=1, help="seed of the random data (1)")
    demo.add_argument("--switch", choices=("on", "off"), help="only switch simulation and demo accounts on or off")


def _demo(given: argparse.Namespace) -> int:
    from plaza.demo.lifecycle import Demo
    from plaza.demo.progress_bars import load_with_progress

    if given.switch is not None:
        with_plaza_logged(lambda plaza: plaza.get(Demo).switch(given.switch == "on"), "demo", detail=given.switch)
        print(f"The demo is {given.switch}.")
        return 0
    result = with_plaza_logged(
        lambda plaza: load_with_progress(plaza.get(Demo).parts.loader, given.seed, given.users, given.posts),
        "demo",
        detail=f"users={given.users} posts={given.posts} seed={given.seed}",
    )
    print(result)
    return 0
