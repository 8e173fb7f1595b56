"""SQLite connections that always close, also when their callers are cancelled.

Each aiosqlite connection has a thread. When the driver's `stop` is called a second time it waits forever, which happens
when the caller of a statement is cancelled twice, and then the process cannot close. The driver also does not wait for
a stopped thread, which may then find the event loop closed. Both are fixed here. The last connection that closes merges
the write-ahead log into the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiosqlite

# How long to wait for threads at the end: an interrupted statement finishes its current step, maybe on a slow disk.
CLOSE_SECONDS = 10.0
_FETCH_ROWS = 64


class SqliteConnections:
    """Opens connections to a file, and tracks those that are closing."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._closing: set[asyncio.Future[Any]] = set()

    def open(self) -> Awaitable[aiosqlite.Connection]:
        # isolation_level=None: otherwise the driver begins transactions itself, too late and never for a SELECT.
        return _Connection(
            lambda: sqlite3.connect(self.file, isolation_level=None, factory=_MergingConnection), self._track_closing
        )

    def _track_closing(self, end: asyncio.Future[Any]) -> None:
        self._closing.add(end)
        end.add_done_callback(self._closing.discard)

    async def wait_closed(self) -> None:
        """Wait for the threads of closed connections."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_SECONDS)


class _MergingConnection(sqlite3.Connection):
    """A connection that merges the write-ahead log into the file when it is the last one to close, also if interrupted.

    SQLite does so when it closes the last connection, but not while it remembers an interrupt. A statement clears it.
    """

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # such as a full disk: the log stays and is merged later
            self.execute("SELECT 1").close()
        super().close()


class _Connection(aiosqlite.Connection):
    """A connection whose `stop` can be called more than once."""

    def __init__(
        self, connector: Callable[[], sqlite3.Connection], on_end: Callable[[asyncio.Future[Any]], None]
    ) -> None:
        super().__init__(connector, _FETCH_ROWS)
        self._thread.daemon = True  # a thread that hangs in a disk operation does not block the end of the process
        self._on_end = on_end
        self._end: asyncio.Future[Any] | None = None

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.interrupt()  # the caller of a running statement has gone
        await super().close()

    def stop(self) -> asyncio.Future[Any] | None:
        if self._end is None:
            self._end = super().stop()
            if self._end is not None:
                self._on_end(self._end)
        return self._end
