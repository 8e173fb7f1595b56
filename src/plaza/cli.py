"""The command line. A command reads its arguments, calls a service and prints the result.

Errors that the operator can fix are one line with exit status 2: a setting, a port in use, a directory in use. Status 1
means that the command ran and failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import plaza
from plaza.commands import (
    api_keys,
    backup,
    challenges,
    data_key,
    demo,
    doctor,
    events,
    keyspace,
    live,
    new,
    notifications,
    search,
    users,
    webhooks,
)
from plaza.commands.base import add_command, settings_of_existing
from plaza.core.process.gc_freeze import relax_gc
from plaza.core.settings import Settings
from plaza.core.submodules import import_without

if TYPE_CHECKING:
    from plaza.commands.base import Run


def run_and_exit() -> NoReturn:
    """Run one command, and end the process at once: freeing each object would take a quarter of a command's CPU."""
    status = main()
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit status."""
    relax_gc()
    given = parser().parse_args(arguments)
    # structlog imports rich, if it is there, for tracebacks that Plaza does not show: 50 modules at every start.
    import_without("structlog", "rich")
    # Imported here, like the modules of commands: `plaza --help` needs none of them, and starts twice as fast.
    from plaza.cli_errors import EXPECTED, file_error, print_error
    from plaza.core.telemetry import configure_logs

    configure_logs()
    try:
        run: Run = given.run
        status = run(given)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except EXPECTED as error:
        return print_error(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _exit_with_sigpipe()
    except OSError as error:
        expected = file_error(error)
        if expected is None:
            raise
        return print_error(expected)


class _PrintVersion(argparse.Action):
    """Reads the version when it is asked for, which takes longer than the rest of `plaza --help`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(f"plaza {plaza.__version__}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """The parser of all commands. `docs/commands.md` is generated from it."""
    top = argparse.ArgumentParser(
        prog="plaza",
        description="A community platform back end on Valkey.",
        epilog="Settings are environment variables; docs/settings.md lists them.",
    )
    top.add_argument("--version", action=_PrintVersion, nargs=0, help="show program's version number and exit")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

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
    doctor.add_commands(commands)
    keyspace.add_commands(commands)
    users.add_commands(commands)
    api_keys.add_commands(commands)
    data_key.add_commands(commands)
    backup.add_commands(commands)
    demo.add_commands(commands)
    challenges.add_commands(commands)
    live.add_commands(commands)
    search.add_commands(commands)
    notifications.add_commands(commands)
    events.add_commands(commands)
    webhooks.add_commands(commands)
    new.add_commands(commands)
    return top


def _serve(given: argparse.Namespace) -> int:
    settings = Settings.from_env()  # before the import, so that an invalid setting is reported at once
    from plaza.serve import serve

    return serve(settings, empty=given.empty)


def _worker(given: argparse.Namespace) -> int:
    settings = settings_of_existing()
    from plaza.serve import work

    return work(settings)


def _exit_with_sigpipe() -> NoReturn:
    """End by SIGPIPE without a message, as other programs do when their reader is gone (`plaza keys | head`)."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(141)
