"""The contents of pictures: files in the object store, described by a row. Equal contents are stored once.

The files are written before the row and deleted after it, so a row always has its files. What a crash leaves behind are
files without a row, which the audit finds. A content that is stored again after its deletion gets another path, so the
two never meet.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import bindparam, delete, select
from sqlalchemy.exc import IntegrityError

from plaza.core.async_engine import AsyncConnection
from plaza.core.clock import Clock
from plaza.core.sql import Sql
from plaza.media.object_store import MediaStore
from plaza.media.processor import ImageFile, ProcessedImage
from plaza.media.tables import CONTENTS, PICTURES

_PATH_OF = select(CONTENTS.c.path).where(CONTENTS.c.digest == bindparam("digest"))
_HAS_PICTURE = select(PICTURES.c.id).where(PICTURES.c.digest == CONTENTS.c.digest).exists()

decode_files = msgspec.json.Decoder(list[ImageFile]).decode


class WrittenContent(NamedTuple):
    """Contents whose files are stored. `path` is None if a row has them already."""

    digest: str
    path: str | None
    image: ProcessedImage


class Contents:
    """Writes and deletes contents."""

    def __init__(self, sql: Sql, store: MediaStore, clock: Clock) -> None:
        self._sql = sql
        self._store = store
        self._clock = clock

    async def write(self, image: ProcessedImage) -> WrittenContent:
        """Write the files of a picture, unless the same are stored already."""
        digest = content_digest(image)
        if await self._sql.fetch_all(_PATH_OF, digest=digest):
            return WrittenContent(digest, None, image)
        path = f"{digest[:2]}/{digest}-{secrets.token_hex(4)}"
        await asyncio.gather(*(self._store.put(file_path(path, file), body) for file, body in image.files))
        return WrittenContent(digest, path, image)

    async def insert(self, tx: AsyncConnection, written: WrittenContent) -> bool:
        """Insert the row of new contents. False if another upload of the same picture has inserted it."""
        image = written.image
        row = {
            "digest": written.digest,
            "path": written.path,
            "width": image.width,
            "height": image.height,
            "blurhash": image.blurhash,
            "files": msgspec.json.encode([file for file, _ in image.files]).decode(),
            "bytes": sum(file.bytes for file, _ in image.files),
            "created_ms": self._clock.now_ms(),
        }
        statement = self._sql.insert(CONTENTS).values(row).on_conflict_do_nothing().returning(CONTENTS.c.digest)
        return (await tx.execute(statement)).scalar_one_or_none() is not None

    async def discard(self, written: WrittenContent) -> None:
        """Delete the files of contents that got no row."""
        if written.path is not None:
            await self._delete_files(written.path, [file for file, _ in written.image.files])

    async def delete_unused(self, digests: Sequence[str]) -> None:
        """Delete those of these contents that no picture has."""
        for digest in dict.fromkeys(digests):
            statement = delete(CONTENTS).where(CONTENTS.c.digest == digest, ~_HAS_PICTURE)
            try:
                async with self._sql.begin() as tx:
                    deleted = (await tx.execute(statement.returning(CONTENTS.c.path, CONTENTS.c.files))).one_or_none()
            except IntegrityError:  # a picture got them meanwhile
                continue
            if deleted is not None:
                await self._delete_files(deleted.path, decode_files(deleted.files))

    async def _delete_files(self, path: str, files: Sequence[ImageFile]) -> None:
        await self._store.delete([file_path(path, file) for file in files])


# What `file_path` returns.
PICTURE_PATH: Final = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}-[0-9a-f]{8}/[a-z]+\.[a-z]+")


def file_path(path: str, file: ImageFile) -> str:
    """Return where a file of contents is in the store."""
    return f"{path}/{file.variant}.{file.format}"


def content_digest(image: ProcessedImage) -> str:
    """Return the hash of a picture's files, which depends on nothing else."""
    digest = hashlib.sha256()
    for file, body in image.files:
        digest.update(f"{file.variant} {file.format} {file.bytes}\n".encode())
        digest.update(body)
    return digest.hexdigest()
