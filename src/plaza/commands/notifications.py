"""`plaza notifications …`: what users are told."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import SEE_HELP, add_command, with_plaza_logged

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    about = "Maintain notifications."
    notifications = commands.add_parser("notifications", help=about, description=about, epilog=SEE_HELP)
    subcommands = notifications.add_subparsers(title="commands", required=True, metavar="COMMAND")
    rebuild = (
        "Record what happened since events are stored (PLAZA_EVENTS_DAYS) again from source data, beside a running "
        "server. What users have read or dismissed stays so."
    )
    add_command(subcommands, "rebuild", _rebuild, rebuild, "plaza notifications rebuild")


def _rebuild(given: argparse.Namespace) -> int:
    from plaza.notifications.rebuild import NotificationRebuild

    changed = with_plaza_logged(lambda plaza: plaza.get(NotificationRebuild).run_all(), "notifications rebuild")
    print(f"{changed:,} activities were missing or wrong.")
    return 0
