"""Makes a backup beside live traffic: keys, then tables, then the files of pictures.

The order is what makes the result repairable. Valkey's moment comes first and the tables' a few milliseconds later, so
the tables have everything that the keys refer to (pictures of posts) and every order whose cart the keys still have;
copies of rows in Valkey are never newer than the rows. `docs/decisions/0023-backups.md` has the whole argument.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Protocol

import plaza
from plaza.app import Plaza, configured_domains
from plaza.backup import media_part, valkey_part
from plaza.backup.chunks import BrokenBackup, ChunkStore
from plaza.backup.media_part import MediaCopy
from plaza.backup.postgres_part import PostgresSnapshot
from plaza.backup.progress import OnProgress, step
from plaza.backup.snapshots import SECRET_FILES, BackupDirectory, MediaFile, MediaPart, Snapshot, SqlPart
from plaza.backup.sqlite_part import FILE, OnBytes, SqliteSnapshot
from plaza.core.settings import Settings
from plaza.media import domain as media
from plaza.media.object_store import MediaStore


class SqlSnapshot(Protocol):
    """The tables as of one moment."""

    async def column(self, statement: str) -> set[str]: ...

    async def store(self, chunks: ChunkStore, spool: Path, on_bytes: OnBytes) -> SqlPart: ...


class BackupRun:
    """One backup to a directory."""

    def __init__(self, opened: Plaza, directory: BackupDirectory, on_progress: OnProgress = lambda name, done: None):
        self._plaza = opened
        self._settings = opened.core.settings
        self._directory = directory
        self._chunks = directory.chunks
        self._on_progress = on_progress

    async def run(self, keep: int | None = None) -> Snapshot:
        """Make a backup, then delete all but the newest `keep`. An interrupted one leaves no snapshot."""
        with self._directory.locked() as spool:
            async with AsyncExitStack() as stack:
                streams = await valkey_part.open_streams(self._plaza.core.valkey, stack)
                sql = await stack.enter_async_context(_open_sql(self._settings))
                created_ms = self._plaza.core.clock.now_ms()
                on_bytes = step(self._on_progress, "valkey")
                files = [spool / f"node-{number}" for number in range(len(streams))]
                await asyncio.gather(
                    *(valkey_part.spool(stream, file, on_bytes) for stream, file in zip(streams, files, strict=True))
                )
                tables = await sql.store(self._chunks, spool, step(self._on_progress, "sql"))
                pictures = await self._store_media(sql)
            on_bytes = step(self._on_progress, "chunks of keys")  # most of the time of a first backup
            valkey = self._plaza.core.valkey
            keys = await valkey_part.store(valkey, self._settings.valkey_url, files, self._chunks, on_bytes)
            secret_files = await self._chunks.put(_secret_files(self._settings.data_dir))
            snapshot = Snapshot(
                self._directory.next_id(created_ms), plaza.__version__, created_ms, keys, tables, pictures, secret_files
            )
            self._directory.save(snapshot)
            if keep is not None:
                await self._directory.keep(keep)
        return snapshot

    async def _store_media(self, sql: SqlSnapshot) -> MediaPart | None:
        if media.DOMAIN not in configured_domains(self._settings):
            return None
        earlier = await self._earlier_files()
        on_bytes = step(self._on_progress, "media")
        copy = MediaCopy(MediaStore.open(self._settings), self._chunks, earlier, on_bytes)
        return await copy.run(await sql.column(media_part.PATHS), self._plaza.core.sql)

    async def _earlier_files(self) -> dict[str, MediaFile]:
        """Return the files of the latest backup that is not damaged."""
        for id in reversed(self._directory.ids()):
            try:
                files = await self._directory.media_files(self._directory.load(id))
            except BrokenBackup:
                continue
            return {file.path: file for file in files}
        return {}


def _open_sql(settings: Settings) -> AbstractAsyncContextManager[SqlSnapshot]:
    if settings.database_url:
        return PostgresSnapshot.open(settings.database_url)
    return SqliteSnapshot.open(settings.data_dir / FILE)


async def _secret_files(data_dir: Path) -> AsyncIterator[bytes]:
    found = {name: (data_dir / name).read_text() for name in SECRET_FILES if (data_dir / name).exists()}
    yield json.dumps(found).encode()
