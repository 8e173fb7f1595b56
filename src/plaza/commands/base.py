"""What every command is made with: its words, and the Plaza or the Valkey that it needs for a moment.

Modules are imported by the command that needs them, so that `plaza token` does not wait for a web server to load.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from plaza.core.settings import Settings

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # generic for type checkers only

    from plaza.app import Plaza
    from plaza.core.valkey import Valkey

T = TypeVar("T")
Run = Callable[[argparse.Namespace], int]

TRY_HELP = "Each command has --help."


def command(commands: Commands, name: str, run: Run, about: str, example: str) -> argparse.ArgumentParser:
    """Add a command. Its help ends with an example."""
    added = commands.add_parser(
        name,
        help=about,
        description=about,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    added.set_defaults(run=run)
    return added


def with_plaza(work: Callable[[Plaza], Awaitable[T]]) -> T:
    """Put Plaza together for one piece of work, beside a running server or alone."""
    from plaza.app import running
    from plaza.valkey_discovery import at_hand

    async def run() -> T:
        async with at_hand(Settings.from_env()) as settings, running(settings) as plaza:
            return await work(plaza)

    return asyncio.run(run())


def with_valkey(work: Callable[[Valkey], Awaitable[T]]) -> T:
    """Work that needs nothing but Valkey, whatever state the rest is in."""
    from plaza.valkey_discovery import at_hand, connected

    async def run() -> T:
        async with at_hand(Settings.from_env()) as settings, connected(settings.valkey_url) as valkey:
            return await work(valkey)

    return asyncio.run(run())
