"""How a process gets to its Valkey: the configured one, that of a server running here, or one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from plaza.core.keys import use_layout
from plaza.core.server import EmbeddedValkey, running_url
from plaza.core.settings import Settings
from plaza.core.wire import Valkey, connect


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Valkey]:
    """A connection, with the names of keys as they are written there."""
    valkey = await connect(url)
    try:
        use_layout(valkey.layout)
        yield valkey
    finally:
        await valkey.close()


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
