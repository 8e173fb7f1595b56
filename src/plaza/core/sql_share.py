"""Bulkheads in front of the database: each domain may use a part of its connections at a time.

Otherwise one locked or slow table would take all connections, and every domain would wait for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar

from plaza.core.errors import Unavailable

# The shares in which the running task has a connection. A transaction inside another one needs no second slot:
# otherwise several such tasks could wait for each other.
_held: ContextVar[frozenset[SqlShare]] = ContextVar("held_sql_shares", default=frozenset())


class SqlShare:
    """The number of connections that a domain may use at a time."""

    def __init__(self, size: int, wait_seconds: float) -> None:
        self._free = asyncio.Semaphore(size)
        self._wait_seconds = wait_seconds

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a free connection of the domain, in order. Raises `Unavailable` if there is none in time."""
        held = _held.get()
        if self in held:
            yield
            return
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable("The database is busy with requests like this one. Retry later.") from None
        _held.set(held | {self})
        try:
            yield
        finally:
            _held.set(held)
            self._free.release()
