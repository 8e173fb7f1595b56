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

TIME_LIMIT_SECONDS = 60.0
TIME_LIMIT_MS = TIME_LIMIT_SECONDS * 1000


def within_time_limit() -> asyncio.Timeout:
    """A block that ends in bounded time."""
    return asyncio.timeout(TIME_LIMIT_SECONDS)


async def connect_for_test(url: str, **options: Any) -> Valkey:
    """A connection that a busy machine does not break, for tests that are about something else."""
    return await connect(url, **{"timeout": 30, "queue_timeout": 10, "connect_timeout": 10, **options})


async def connect_with_retries(url: str, **options: Any) -> Valkey:
    """A connection, also where its options leave less time to make it than a busy machine takes."""
    async with within_time_limit():
        while True:
            with contextlib.suppress(ConnectionLost):
                return await connect(url, **options)


async def connection_error(url: str, reason: str) -> ConnectionLost:
    """The error of whoever connects in vain, for that reason: a busy machine may have others at first."""
    async with within_time_limit():
        while True:
            try:
                valkey = await connect(url, queue_timeout=0.2)
            except ConnectionLost as error:
                if re.search(reason, str(error)):
                    return error
            else:
                await valkey.close()
                raise AssertionError(f"{url} was reached")
