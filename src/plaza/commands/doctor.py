"""`plaza doctor`: check the installation."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from plaza.commands.base import add_command

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    about = (
        "Check settings, data directory, permissions, disk, clock, Valkey, SQL, mail and pictures, beside a running "
        "server or without one. It changes nothing. Exit status 1 if something is wrong."
    )
    add_command(commands, "doctor", _doctor, about, "plaza doctor")


def _doctor(given: argparse.Namespace) -> int:
    import asyncio

    from plaza.doctor.diagnosis import diagnose

    results = asyncio.run(diagnose(os.environ))
    print(*results, sep="\n")
    count = sum(result.state == "wrong" for result in results)
    print(f"\n{count} wrong, {sum(result.state == 'warning' for result in results)} to know about.")
    return 1 if count else 0
