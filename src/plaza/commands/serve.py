"""`plaza serve` and `plaza worker`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from plaza.commands.base import add_command, settings_of_existing
from plaza.core.settings import Settings

if TYPE_CHECKING:
    from plaza.commands.base import Commands


def add_commands(commands: Commands) -> None:
    serve = add_command(
        commands,
        "serve",
        _serve,
        "Run the API and a worker, with an embedded Valkey unless PLAZA_VALKEY_URL is set.",
        "PLAZA_PORT=9000 plaza serve",
    )
    serve.add_argument("--empty", action="store_true", help="do not load demo data into an empty data directory")
    add_command(
        commands,
        "worker",
        _worker,
        "Run only a worker, for a running server or for PLAZA_VALKEY_URL. Any number of workers may run.",
        "PLAZA_VALKEY_URL=valkey://db.internal plaza worker",
    )


def _serve(given: argparse.Namespace) -> int:
    settings = Settings.from_env()  # before the import, so that an invalid setting is reported at once
    from plaza.serve import serve

    return serve(settings, empty=given.empty)


def _worker(given: argparse.Namespace) -> int:
    settings = settings_of_existing()
    from plaza.serve import work

    return work(settings)
