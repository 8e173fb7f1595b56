"""Connects to Valkey and loads the caches' Lua library, for applications that use nothing else of Plaza."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plaza.caching.library import LIBRARY
from plaza.core.functions import Functions
from plaza.core.keyspace import use_layout
from plaza.core.valkey import connect as connect_valkey


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Functions]:
    """Connect to one server or a cluster: `valkey://`, `redis://`, `rediss://`, `unix://`, `valkey+cluster://h:p,…`."""
    functions = await open_functions(url)
    try:
        yield functions
    finally:
        await functions.outbox.drain()
        await functions.valkey.close()


async def open_functions(url: str) -> Functions:
    """Connect and load the library. The caller closes `functions.valkey`."""
    valkey = await connect_valkey(url)
    use_layout(valkey.layout)
    functions = Functions(valkey, [LIBRARY])
    try:
        await functions.load()
    except BaseException:
        await valkey.close()
        raise
    return functions
