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
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

import plaza
from plaza.core.process.gc_freeze import relax_gc
from plaza.core.submodules import import_without

if TYPE_CHECKING:
    from plaza.commands.base import Run

# The module in `plaza.commands` of each command, in the order of the help.
COMMANDS: Final = {
    "serve": "serve",
    "worker": "serve",
    "doctor": "doctor",
    "keys": "keyspace",
    "audit": "keyspace",
    "adopt": "keyspace",
    "token": "users",
    "users": "users",
    "import": "users",
    "export": "users",
    "api-keys": "api_keys",
    "data-key": "data_key",
    "backup": "backup",
    "restore": "backup",
    "demo": "demo",
    "challenges": "challenges",
    "live": "live",
    "search": "search",
    "notifications": "notifications",
    "events": "events",
    "webhooks": "webhooks",
    "new": "new",
}


def run_and_exit() -> NoReturn:
    """Run one command, and end the process at once: freeing each object would take a quarter of a command's CPU."""
    status = main()
    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit status."""
    relax_gc()
    arguments = sys.argv[1:] if arguments is None else arguments
    given = parser(*arguments[:1]).parse_args(arguments)
    # structlog imports rich, if it is there, for tracebacks that Plaza does not show: 50 modules at every start.
    import_without("structlog", "rich")
    # Imported here, like the modules of commands: `plaza --help` needs none of them, and starts twice as fast.
    from plaza.cli_errors import EXPECTED, file_error, print_error
    from plaza.core.telemetry import configure_logs

    configure_logs()
    try:
        run: Run = given.run
        try:
            return run(given)
        finally:  # also before the error of a command that fails
            if sys.stdout is not None:
                sys.stdout.flush()
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


def parser(command: str = "") -> argparse.ArgumentParser:
    """The parser of one command, or of all without the name of one. `docs/commands.md` is generated from it."""
    top = argparse.ArgumentParser(
        prog="plaza",
        description="A community platform back end on Valkey.",
        epilog="Settings are environment variables; docs/settings.md lists them.",
    )
    top.add_argument("--version", action="version", version=f"plaza {plaza.__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    modules = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for module in modules:
        import_module(f"plaza.commands.{module}").add_commands(commands)
    return top


def _exit_with_sigpipe() -> NoReturn:
    """End by SIGPIPE without a message, as other programs do when their reader is gone (`plaza keys | head`)."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    raise SystemExit(141)
