"""One time limit for all tests, which only a stuck test reaches.

The machine may be slow, shared or paused for a second. A test that fails because of that says nothing about Plaza, so
tests do not check speed: they wait until a condition holds, at most this long.
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
    """Return a context manager that fails after the time limit."""
    return asyncio.timeout(TIME_LIMIT_SECONDS)


async def connect_for_test(url: str, **options: Any) -> Valkey:
    """Connect with long timeouts, for tests that are not about timeouts."""
    return await connect(url, **{"timeout": 30, "queue_timeout": 10, "connect_timeout": 10, **options})


async def connect_with_retries(url: str, **options: Any) -> Valkey:
    """Connect, retrying if the options allow less time than a busy machine needs."""
    async with within_time_limit():
        while True:
            with contextlib.suppress(ConnectionLost):
                return await connect(url, **options)


async def connection_error(url: str, reason: str) -> ConnectionLost:
    """Return the error of a failed connection whose text matches; a busy machine may fail for other reasons first."""
    async with within_time_limit():
        while True:
            try:
                valkey = await connect(url, queue_timeout=0.2)
            except ConnectionLost as error:
                if re.search(reason, str(error)):
                    return error
            else:
                await valkey.close()
                raise AssertionError(f"{url} accepted the connection")
