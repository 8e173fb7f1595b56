"""The files of pictures in a backup. A file never changes, so one of an earlier backup is not read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec
from sqlalchemy import delete, select

from plaza.backup.chunks import ChunkStore
from plaza.backup.snapshots import MediaFile, MediaPart
from plaza.core.sql import Sql
from plaza.media.contents import PICTURE_PATH
from plaza.media.object_store import MediaStore, MissingFile, StoredFile
from plaza.media.tables import CONTENTS, PICTURES

# Of the contents in the tables' snapshot.
PATHS: Final = "SELECT path FROM media_contents"

OnBytes = Callable[[int], None]


class MediaCopy:
    """Copies the files of a store into a backup. Files of earlier backups are given by their paths."""

    def __init__(self, store: MediaStore, chunks: ChunkStore, earlier: dict[str, MediaFile], on_bytes: OnBytes) -> None:
        self._store = store
        self._chunks = chunks
        self._earlier = earlier
        self._on_bytes = on_bytes

    async def run(self, paths: set[str], sql: Sql) -> MediaPart:
        """Store the files of contents; `paths` are those of the snapshot of the tables, which is older.

        A content that has no row any more was deleted since: its files are incomplete. A row is deleted before its
        files, so all others are complete.
        """
        found = [file async for file in self._files(paths)]
        deleted = paths - {row.path for row in await sql.fetch_all(select(CONTENTS.c.path))}
        files = sorted((file for file in found if _folder(file.path) not in deleted), key=lambda file: file.path)
        index = await self._chunks.put(_lines(files))
        return MediaPart(index, len(files), sum(file.stream.bytes for file in files), tuple(sorted(deleted)))

    async def _files(self, paths: set[str]) -> AsyncIterator[MediaFile]:
        async for page in self._store.list():
            for file in page:
                if _folder(file.path) in paths and (found := await self._stored(file)) is not None:
                    yield found
                self._on_bytes(file.size)

    async def _stored(self, file: StoredFile) -> MediaFile | None:
        earlier = self._earlier.get(file.path)
        if earlier is not None and earlier.stream.bytes == file.size and self._chunks.has(earlier.stream):
            return earlier
        try:
            return MediaFile(file.path, await self._chunks.put(self._store.read(file.path, 0, file.size)))
        except MissingFile:  # deleted meanwhile
            return None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


async def _lines(files: list[MediaFile]) -> AsyncIterator[bytes]:
    for file in files:
        yield msgspec.json.encode(file) + b"\n"


async def is_empty(store: MediaStore) -> bool:
    """Whether the store has no pictures."""
    async for _ in _paths(store):
        return False
    return True


async def load_files(files: list[MediaFile], chunks: ChunkStore, store: MediaStore, on_bytes: OnBytes) -> None:
    """Write the files of a backup to a store, and delete all other pictures."""
    for file in files:
        await store.put(file.path, await chunks.read_all(file.stream))
        on_bytes(file.stream.bytes)
    kept = {file.path for file in files}
    await store.delete([path async for path in _paths(store) if path not in kept])


async def _paths(store: MediaStore) -> AsyncIterator[str]:
    """Yield the paths of pictures. Others use a bucket too if Plaza has no prefix in it."""
    async for page in store.list():
        for file in page:
            if PICTURE_PATH.fullmatch(file.path):
                yield file.path


async def delete_pictures(sql: Sql, paths: tuple[str, ...]) -> None:
    """Delete the pictures whose files were deleted between the snapshot of the tables and the copy of the files."""
    async with sql.begin() as tx:
        for path in paths:
            digest = select(CONTENTS.c.digest).where(CONTENTS.c.path == path).scalar_subquery()
            await tx.execute(delete(PICTURES).where(PICTURES.c.digest == digest))
            await tx.execute(delete(CONTENTS).where(CONTENTS.c.path == path))
