"""`plaza demo`: a community to look at."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import command, with_plaza

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add(commands: Commands) -> None:
    demo = command(
        commands,
        "demo",
        _demo,
        "Make a believable community of any size, on top of what is there. The same seed makes the same one; broken "
        "off, it goes on where it was; a second time changes nothing. Or switch the demo of a first start on and off.",
        "plaza demo --users 100000 --posts 1000000 --seed 7",
    )
    demo.add_argument("--users", type=int, default=1000, help="how many people (1000)")
    demo.add_argument("--posts", type=int, default=10000, help="how many posts they made (10000)")
    demo.add_argument("--seed", type=int, default=1, help="another number, another community (1)")
    demo.add_argument("--switch", choices=("on", "off"), help="only turn simulation and demo accounts on or off")


def _demo(given: argparse.Namespace) -> int:
    from plaza.demo.progress_bars import make
    from plaza.demo.service import Demo

    if given.switch is not None:
        with_plaza(lambda plaza: plaza.get(Demo).switch(given.switch == "on"))
        print(f"The demo is {given.switch}.")
        return 0
    made = with_plaza(lambda plaza: make(plaza.get(Demo).loader, given.seed, given.users, given.posts))
    print(made)
    return 0
