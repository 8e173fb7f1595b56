"""How long tests wait: one limit for all, which only what is stuck reaches.

The machine may be slow, shared, or stopped for a second by whoever owns it. A test that fails for that says nothing of
Plaza, so nothing here is about speed: whatever must happen has this long, and whoever waits goes on as soon as it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any

from plaza.core.valkey import ConnectionLost, Valkey, connect

PATIENCE_SECONDS = 60.0
PATIENCE_MS = PATIENCE_SECONDS * 1000


def patiently() -> asyncio.Timeout:
    """A block that ends in bounded time."""
    return asyncio.timeout(PATIENCE_SECONDS)


async def connect_patiently(url: str, **options: Any) -> Valkey:
    """A connection that a busy machine does not break, for tests that are about something else."""
    return await connect(url, **{"timeout": 30, "patience": 10, "connect_timeout": 10, **options})


async def persistently(url: str, **options: Any) -> Valkey:
    """A connection, also where its options leave less time to make it than a busy machine takes."""
    async with patiently():
        while True:
            with contextlib.suppress(ConnectionLost):
                return await connect(url, **options)


async def refusal(url: str, reason: str) -> ConnectionLost:
    """The error of whoever connects in vain, for that reason: a busy machine may have others at first."""
    async with patiently():
        while True:
            try:
                valkey = await connect(url, patience=0.2)
            except ConnectionLost as error:
                if re.search(reason, str(error)):
                    return error
            else:
                await valkey.close()
                raise AssertionError(f"{url} was reached")
