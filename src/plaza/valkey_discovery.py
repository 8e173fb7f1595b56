"""Finds the Valkey of a process: the configured one, that of a running server, or an embedded one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final

from plaza.core.embedded_valkey import DataDirInUse, EmbeddedValkey, is_owned, running_url
from plaza.core.errors import SettingError
from plaza.core.keyspace import use_layout
from plaza.core.settings import Settings
from plaza.core.valkey import ConnectionLost, Valkey, connect

# At start a process waits for Valkey longer than a request would: both may be starting, or the machine is busy.
CONNECT_SECONDS: Final = 4.0
# A command waits this long for a server that is starting: as long as Valkey may take to open its socket.
SERVER_START_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.1


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[Valkey]:
    """Connect to Valkey and use its key layout in this process."""
    valkey = await _connect_with_retries(url)
    try:
        use_layout(valkey.layout)
        yield valkey
    finally:
        await valkey.close()


async def _connect_with_retries(url: str) -> Valkey:
    deadline = monotonic() + CONNECT_SECONDS
    while True:
        try:
            return await connect(url)
        except SettingError as error:
            raise SettingError(f"PLAZA_VALKEY_URL: {error}") from None
        except ConnectionLost:
            if monotonic() > deadline:
                raise
        await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def find_valkey(settings: Settings) -> AsyncIterator[Settings]:
    """Yield the settings of a command with the URL of a Valkey, whether or not a server runs.

    A Valkey that is started for the command stops with it. A server that is starting or stopping is waited for.
    """
    deadline = monotonic() + SERVER_START_SECONDS
    async with AsyncExitStack() as stack:
        url: str | None = settings.valkey_url
        while not url:
            url = await running_url(settings.data_dir) or await _start_own(settings, stack, deadline)
        yield replace(settings, valkey_url=url)


async def _start_own(settings: Settings, stack: AsyncExitStack, deadline: float) -> str | None:
    """Start an embedded Valkey. None if another process owns the directory, and the caller should look again."""
    try:
        valkey = EmbeddedValkey(settings.data_dir, settings.fsync, settings.maxmemory_bytes, for_command=True)
        return (await stack.enter_async_context(valkey)).url
    except DataDirInUse as in_use:
        if monotonic() > deadline:
            raise DataDirInUse(f"{in_use} Its Valkey has not responded for {SERVER_START_SECONDS:g} s.") from None
    await asyncio.sleep(POLL_SECONDS)
    return None


async def wait_for_server(data_dir: Path) -> str | None:
    """The URL of the Valkey of a server in this directory. Waits while it starts; None if no server runs there."""
    deadline = monotonic() + SERVER_START_SECONDS
    while True:
        url = await running_url(data_dir)
        if url is not None or not is_owned(data_dir) or monotonic() > deadline:
            return url
        await asyncio.sleep(POLL_SECONDS)
