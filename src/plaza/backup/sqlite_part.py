"""The tables of a backup on SQLite: a copy of the file, as of one moment, by SQLite's own backup function."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

from plaza.backup.chunks import BrokenBackup, ChunkStore
from plaza.backup.snapshots import SqlPart
from plaza.backup.valkey_part import read_file

DIALECT: Final = "sqlite"
FILE: Final = "plaza.sqlite"
# Copied in one step, between which the progress is shown.
_STEP_PAGES: Final = 4_096
_PAGE_BYTES: Final = 4_096

OnBytes = Callable[[int], None]


class SqliteSnapshot:
    """The tables as of the moment when this was opened. Writers go on; their log grows until it is closed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, file: Path) -> AsyncIterator[SqliteSnapshot]:
        with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the moment
            yield cls(connection)

    async def column(self, statement: str) -> set[str]:
        """Return the values of a statement with one column."""
        return {row[0] for row in await asyncio.to_thread(lambda: self._connection.execute(statement).fetchall())}

    async def store(self, chunks: ChunkStore, spool: Path, on_bytes: OnBytes) -> SqlPart:
        """Store the tables."""
        copy = spool / FILE
        await asyncio.to_thread(self._copy, copy, on_bytes)
        revisions = await self.column("SELECT version_num FROM alembic_version")
        return SqlPart(DIALECT, tuple(sorted(revisions)), {FILE: await chunks.put(read_file(copy))})

    def _copy(self, file: Path, on_bytes: OnBytes) -> None:
        copied = 0

        def show(_: int, left: int, total: int) -> None:
            nonlocal copied
            on_bytes((total - left - copied) * _PAGE_BYTES)
            copied = total - left

        with closing(sqlite3.connect(file)) as target:
            try:
                self._connection.backup(target, pages=_STEP_PAGES, progress=show)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file)) from None


def is_empty(data_dir: Path) -> bool:
    """Whether there are no tables yet."""
    return not (data_dir / FILE).exists()


async def load_tables(part: SqlPart, chunks: ChunkStore, data_dir: Path, on_bytes: OnBytes) -> None:
    """Put the file of a backup in the place of the present one, in one step."""
    fresh = data_dir / f"{FILE}.restoring"
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        async for data in chunks.read(part.streams[FILE]):
            file.write(data)
            on_bytes(len(data))
        file.flush()
        os.fsync(file.fileno())
    await asyncio.to_thread(_check, fresh)
    for suffix in ("-wal", "-shm"):  # of the present file
        (data_dir / f"{FILE}{suffix}").unlink(missing_ok=True)
    fresh.replace(data_dir / FILE)


def _check(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        found = connection.execute("PRAGMA quick_check").fetchone()[0]
    if found != "ok":
        raise BrokenBackup(f"The tables of the backup are damaged: {found}. Use another backup.")
