"""How a process gets to its Valkey: the configured one, that of a server running here, or one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Final

from plaza.core.keys import use_layout
from plaza.core.server import EmbeddedValkey, running_url
from plaza.core.settings import Settings
from plaza.core.wire import ConnectionLost, Valkey, connect

# Who starts beside a Valkey that is starting too, or on a busy machine, waits for it longer than a request would.
START_SECONDS: Final = 4.0


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
        await asyncio.sleep(0.1)


@asynccontextmanager
async def at_hand(settings: Settings) -> AsyncIterator[Settings]:
    """The settings of a command, with a Valkey in them whether or not a server is running.

    One that has to be started for the command ends with it.
    """
    url = settings.valkey_url or await running_url(settings.data_dir)
    if url is None:
        async with EmbeddedValkey(settings.data_dir, settings.fsync) as own:
            yield replace(settings, valkey_url=own.url)
    else:
        yield replace(settings, valkey_url=url)
