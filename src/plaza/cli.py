"""The command line. A command reads its arguments, calls a service and prints what came back; it decides nothing.

What an operator can put right is said in one line, with exit status 2: a setting, a taken port, a directory in use.
Status 1 means that the command ran and the answer is no.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from plaza import __version__
from plaza.cli_errors import FORESEEN, complain
from plaza.commands import challenges, demo, keyspace, live, users
from plaza.commands.base import command
from plaza.core.settings import Settings
from plaza.core.telemetry import configure_logs

if TYPE_CHECKING:
    from plaza.commands.base import Run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    given = parser().parse_args(arguments)
    configure_logs()
    try:
        run: Run = given.run
        return run(given)
    except FORESEEN as error:
        return complain(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _stop_writing()


def parser() -> argparse.ArgumentParser:
    """All commands. `docs/commands.md` is made from it."""
    top = argparse.ArgumentParser(
        prog="plaza",
        description="A community platform back end on Valkey.",
        epilog="Settings are environment variables; docs/settings.md has them all.",
    )
    top.add_argument("--version", action="version", version=f"plaza {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = command(
        commands,
        "serve",
        _serve,
        "Run the API and a worker, with a Valkey of its own unless PLAZA_VALKEY_URL is set.",
        "PLAZA_PORT=9000 plaza serve",
    )
    serve.add_argument("--empty", action="store_true", help="never fill an empty data directory with example data")

    command(
        commands,
        "worker",
        _worker,
        "Run a worker alone, beside a running server or on PLAZA_VALKEY_URL. Any number may run.",
        "PLAZA_VALKEY_URL=valkey://db.internal plaza worker",
    )
    keyspace.add(commands)
    users.add(commands)
    demo.add(commands)
    challenges.add(commands)
    live.add(commands)
    return top


def _serve(given: argparse.Namespace) -> int:
    settings = Settings.from_env()
    from plaza.serve import serve

    return serve(settings, empty=given.empty)


def _worker(given: argparse.Namespace) -> int:
    from plaza.serve import work

    return work(Settings.from_env())


def _stop_writing() -> NoReturn:
    """The reader of our output left (`plaza keys | head`): end as other programs do, without a word."""
    import os
    import signal

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(141)
