"""Shared by all commands: how a command is added, and how it gets a Plaza or a Valkey.

A command imports the modules it needs itself, so that `plaza token` does not wait for a web server to load.
"""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from plaza.core.errors import OperatorError
from plaza.core.settings import Settings

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # generic for type checkers only

    from plaza.app import Plaza
    from plaza.core.valkey import Valkey

T = TypeVar("T")
Run = Callable[[argparse.Namespace], int]

SEE_HELP = "Each command has --help."


def add_command(commands: Commands, name: str, run: Run, summary: str, example: str) -> argparse.ArgumentParser:
    """Add a command. Its help ends with an example."""
    added = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    added.set_defaults(run=run)
    return added


def with_plaza(
    work: Callable[[Plaza], Awaitable[T]], *, domains: Sequence[str] = (), protects_documented: bool = False
) -> T:
    """Run some work with an open Plaza, beside a running server or alone.

    With `domains` only these are imported and built: for work that uses their services, and nothing that other domains
    offer them (`Provided`). With `protects_documented` it may be the first start of Plaza, on a Valkey that another
    service filled.
    """
    import asyncio

    from plaza.app import configured_domains, running
    from plaza.valkey_discovery import find_valkey

    async def run() -> T:
        async with (
            find_valkey(settings_of_existing(is_first=protects_documented)) as settings,
            running(settings, configured_domains(settings, domains), protects_documented=protects_documented) as plaza,
        ):
            return await work(plaza)

    return asyncio.run(run())


def with_plaza_logged(
    work: Callable[[Plaza], Awaitable[T]],
    action: str,
    subject: str = "",
    detail: str = "",
    *,
    domains: Sequence[str] = (),
    protects_documented: bool = False,
) -> T:
    """As `with_plaza`, for a command that changes something: the security log has it before it runs, and its result.

    `domains` must include `accounts`, which has the log.
    """
    from plaza.accounts.security_log import SqlSecurityLog
    from plaza.core.security_log import DONE, LogEntry

    async def run(plaza: Plaza) -> T:
        entry = LogEntry(operator(), f"plaza {action}", subject, detail=detail, kind="admin")
        log = plaza.services.get(SqlSecurityLog)
        if log is None:
            return await work(plaza)
        async with log.recording(entry):
            result = await work(plaza)
            entry.result = DONE
            return result

    return with_plaza(run, domains=domains, protects_documented=protects_documented)


def settings_of_existing(*, is_first: bool = False) -> Settings:
    """The settings, for a command that needs what a server has written. Only a server creates a data directory.

    Of a folder that is none, an audit would be clean, and a backup would succeed. With `is_first` it may be the first
    start of Plaza, if the keys are in a Valkey elsewhere.
    """
    settings = Settings.from_env()
    if is_first and settings.valkey_url:
        return settings
    folder = settings.data_dir.absolute()
    is_elsewhere = settings.valkey_url and settings.database_url
    if is_elsewhere and not folder.exists():
        raise OperatorError(f"{folder} does not exist. Create it: mkdir -p {folder}")
    if not folder.is_dir() or not (
        is_elsewhere or any((folder / name).exists() for name in ("valkey", "plaza.sqlite"))
    ):
        raise OperatorError(
            f"{folder} is no data directory of Plaza. Set PLAZA_DATA_DIR to that of your server; `plaza serve` creates "
            "it."
        )
    return settings


def operator() -> str:
    """Return the user of the machine who runs the command, as the security log names them."""
    try:
        return f"@cli:{getpass.getuser()}"
    except (KeyError, OSError):  # a container may run as a user without a name
        return "@cli"


def with_valkey(work: Callable[[Valkey], Awaitable[T]]) -> T:
    """Run some work with a Valkey connection only. It works even if SQL or a domain cannot start."""
    import asyncio

    from plaza.valkey_discovery import find_valkey, open_connection

    async def run() -> T:
        async with find_valkey(settings_of_existing()) as settings, open_connection(settings.valkey_url) as valkey:
            return await work(valkey)

    return asyncio.run(run())
