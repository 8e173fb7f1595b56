"""How a process gets to its Valkey: the configured one, that of a server running here, or one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final

from plaza.core.embedded_valkey import EmbeddedValkey, Taken, is_owned, running_url
from plaza.core.keyspace import use_layout
from plaza.core.settings import Settings
from plaza.core.valkey import ConnectionLost, Valkey, connect

# Who starts beside a Valkey that is starting too, or on a busy machine, waits for it longer than a request would.
START_SECONDS: Final = 4.0
# A command that is given while a server starts waits for it: as long as Valkey may take to open its socket.
STARTING_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Valkey]:
    """A connection, with the names of keys as they are written there."""
    valkey = await _reached(url)
    try:
        use_layout(valkey.layout)
        yield valkey
    finally:
        await valkey.close()


async def _reached(url: str) -> Valkey:
    until = monotonic() + START_SECONDS
    while True:
        try:
            return await connect(url)
        except ConnectionLost:
            if monotonic() > until:
                raise
        await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def at_hand(settings: Settings) -> AsyncIterator[Settings]:
    """The settings of a command, with a Valkey in them whether or not a server is running.

    One that has to be started for the command ends with it. A server that is just starting, or ending, is waited for.
    """
    until = monotonic() + STARTING_SECONDS
    async with AsyncExitStack() as stack:
        url: str | None = settings.valkey_url
        while not url:
            url = await running_url(settings.data_dir) or await _own(settings, stack, until)
        yield replace(settings, valkey_url=url)


async def _own(settings: Settings, stack: AsyncExitStack, until: float) -> str | None:
    """A Valkey of one's own; None if somebody has the directory, and it is worth looking again."""
    try:
        valkey = EmbeddedValkey(settings.data_dir, settings.fsync, brief=True)
        return (await stack.enter_async_context(valkey)).url
    except Taken as taken:
        if monotonic() > until:
            raise Taken(f"{taken} Its Valkey has not answered for {STARTING_SECONDS:g} s.") from None
    await asyncio.sleep(LOOK_SECONDS)
    return None


async def servers_url(data_dir: Path) -> str | None:
    """Where the Valkey of a server in this directory listens, once it does; None if no server runs there."""
    until = monotonic() + STARTING_SECONDS
    while True:
        url = await running_url(data_dir)
        if url is not None or not is_owned(data_dir) or monotonic() > until:
            return url
        await asyncio.sleep(LOOK_SECONDS)
