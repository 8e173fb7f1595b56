"""A Valkey with the shop's functions, for who uses the caches as a library and has nothing else of Plaza."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plaza.core.functions import Functions
from plaza.core.keyspace import use_layout
from plaza.core.valkey import connect as connect_wire
from plaza.shop.library import LIBRARY


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Functions]:
    """One server or a cluster: `valkey://`, `redis://`, `rediss://`, `unix://`, `valkey+cluster://host:port,…`."""
    store = await opened(url)
    try:
        yield store
    finally:
        await store.outbox.drain()
        await store.valkey.close()


async def opened(url: str) -> Functions:
    valkey = await connect_wire(url)
    use_layout(valkey.layout)
    functions = Functions(valkey, [LIBRARY])
    try:
        await functions.load()
    except BaseException:
        await valkey.close()
        raise
    return functions
