"""SQLite's connections, each with a thread of its own, which end whatever happens to those who use them.

The driver's own connection, told to stop while it stops already, waits for ever: that is where a statement ends whose
caller is cancelled twice, and with it the process that wants to close. Nor does anybody wait for one that was told to
stop, so that its thread may find the event loop gone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiosqlite

# For the step that SQLite is in when its statement is broken off. Its disk may be slow.
ENDING_SECONDS = 10.0
_ROWS_AT_A_TIME = 64


class SqliteConnections:
    """Makes connections to a file, and knows those that are ending."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._ending: set[asyncio.Future[Any]] = set()

    def open(self) -> Awaitable[aiosqlite.Connection]:
        # The driver would otherwise begin transactions by itself, late and never around a SELECT.
        return _Connection(lambda: sqlite3.connect(self.file, isolation_level=None), self._note)

    def _note(self, end: asyncio.Future[Any]) -> None:
        self._ending.add(end)
        end.add_done_callback(self._ending.discard)

    async def ended(self) -> None:
        """Wait for the threads of connections that were closed or given up."""
        if self._ending:
            await asyncio.wait(self._ending, timeout=ENDING_SECONDS)


class _Connection(aiosqlite.Connection):
    """Ends once, however often it is told to."""

    def __init__(
        self, connector: Callable[[], sqlite3.Connection], on_end: Callable[[asyncio.Future[Any]], None]
    ) -> None:
        super().__init__(connector, _ROWS_AT_A_TIME)
        self._thread.daemon = True  # one that hangs in its disk does not keep the process
        self._on_end = on_end
        self._end: asyncio.Future[Any] | None = None

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()  # a statement that still runs does so for nobody
        await super().close()

    def stop(self) -> asyncio.Future[Any] | None:
        if self._end is None:
            self._end = super().stop()
            if self._end is not None:
                self._on_end(self._end)
        return self._end
