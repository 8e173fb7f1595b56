"""Connects to Valkey and loads the caches' Lua library, for applications that use nothing else of Plaza."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from plaza.caching.keys import PREFIX
from plaza.caching.library import LIBRARY
from plaza.core.functions import Functions
from plaza.core.keyspace import use_layout
from plaza.core.valkey import connect as connect_valkey


@asynccontextmanager
async def connect(url: str, prefix: str = "") -> AsyncIterator[Functions]:
    """Connect to one server or a cluster: `valkey://`, `redis://`, `rediss://`, `unix://`, `valkey+cluster://h:p,…`.

    The names of all keys of the caches begin with `prefix`.
    """
    functions = await open_functions(url, prefix)
    try:
        yield functions
    finally:
        await functions.outbox.drain()
        await functions.valkey.close()


async def open_functions(url: str, prefix: str = "") -> Functions:
    """Connect and load the library. The caller closes `functions.valkey`."""
    if not PREFIX.fullmatch(prefix):
        raise ValueError("Invalid prefix. Use up to 64 of A-Z, a-z, 0-9, `_`, `.`, `:` and `-`.")
    library = replace(LIBRARY, catalogue=LIBRARY.catalogue.prefixed(prefix)) if prefix else LIBRARY
    valkey = await connect_valkey(url)
    use_layout(valkey.layout)
    functions = Functions(valkey, [library])
    try:
        await functions.load()
    except BaseException:
        await valkey.close()
        raise
    return functions
