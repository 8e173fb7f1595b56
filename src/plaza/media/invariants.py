"""Compares the object store with the tables, for the audit: missing files, files without a row, unused contents.

Both are read in at most 256 parts, by the first two digits of the digest, so that a large store needs little memory.
Files and rows that are younger than a day may belong to an upload that is still running.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import bindparam, func, select, update

from plaza.core.clock import Clock
from plaza.core.invariants import Violation
from plaza.core.picture_variants import VARIANT_WIDTHS
from plaza.core.sql import Sql
from plaza.media.contents import Contents, decode_files, file_path
from plaza.media.object_store import MediaStore, StoredFile
from plaza.media.processor import ImageFile, ImageProcessor
from plaza.media.tables import CONTENTS, PICTURES
from plaza.media.uploads import DAY_MS

MISSING, ORPHANED, UNUSED = "file", "orphan", "unused"
FAMILY: Final = "media files"

_PART = (
    select(CONTENTS, select(PICTURES.c.id).where(PICTURES.c.digest == CONTENTS.c.digest).exists().label("has_picture"))
    .where(CONTENTS.c.digest.startswith(bindparam("part")))
    .order_by(CONTENTS.c.digest)
)
_PARTS = select(func.substr(CONTENTS.c.digest, 1, 2).label("part")).distinct()
_BY_PATH = select(CONTENTS).where(CONTENTS.c.path == bindparam("path"))


class _Stored(NamedTuple):
    """The files of one content in the store: size and time of each, by name."""

    files: Mapping[str, StoredFile]

    def has(self, file: ImageFile) -> bool:
        found = self.files.get(f"{file.variant}.{file.format}")
        return found is not None and found.size == file.bytes


class FileInspector:
    """Checks that every picture has its files, and that every file has its picture."""

    family = FAMILY
    checks_valkey = False

    def __init__(
        self, sql: Sql, store: MediaStore, contents: Contents, processor: ImageProcessor, clock: Clock
    ) -> None:
        self._sql = sql
        self._store = store
        self._contents = contents
        self._processor = processor
        self._clock = clock

    async def inspect(self) -> AsyncIterator[Violation]:
        """Yield missing and wrong files, files that no content has, and contents that no picture has."""
        async with self._sql.read() as tx:
            in_tables = {str(row.part) for row in await tx.execute(_PARTS)}
        for part in sorted(in_tables | await self._store.folders()):
            async for found in self._inspect_part(part):
                yield found

    async def _inspect_part(self, part: str) -> AsyncIterator[Violation]:
        # The rows first: files are written before their row, and deleted after it.
        async with self._sql.read() as tx:
            rows = {row.path: row for row in await tx.execute(_PART, {"part": part})}
        stored = await self._stored(part)
        old = self._clock.now_ms() - DAY_MS
        for path, row in rows.items():
            missing = self._missing(row, stored.pop(path, _Stored({})))
            if missing and await self._is_still_missing(row):
                yield _missing_files(path, missing, len(decode_files(row.files)))
            elif not row.has_picture and row.created_ms < old:
                yield Violation(FAMILY, UNUSED, path, "", "no picture has this content", "delete it with its files")
        for path, content in stored.items():
            if all(file.modified_ms < old for file in content.files.values()):
                says = f"{len(content.files)} files belong to no picture"
                yield Violation(FAMILY, ORPHANED, path, "", says, "delete them")

    async def _stored(self, prefix: str) -> dict[str, _Stored]:
        """Return what is in a part of the store, by the path of the content."""
        found: dict[str, dict[str, StoredFile]] = defaultdict(dict)
        async for page in self._store.list(prefix):
            for file in page:
                path, _, name = file.path.rpartition("/")
                found[path][name] = file
        return {path: _Stored(files) for path, files in found.items()}

    def _missing(self, row: Any, stored: _Stored) -> list[ImageFile]:
        return [file for file in decode_files(row.files) if not stored.has(file)]

    async def _is_still_missing(self, row: Any) -> bool:
        """Look again: the content may have been deleted while the store was listed."""
        now = await self._sql.fetch_all(_BY_PATH, path=row.path)
        if not now:
            return False
        stored = (await self._stored(row.path)).get(row.path, _Stored({}))
        return bool(self._missing(now[0], stored))

    async def repair(self, fault: Violation) -> None:
        """Delete what belongs to nothing; make missing sizes again from the largest file that is left."""
        rows = await self._sql.fetch_all(_BY_PATH, path=fault.key)
        if fault.rule == UNUSED and rows:
            await self._contents.delete_unused([rows[0].digest])
        elif fault.rule == ORPHANED and not rows:
            stored = (await self._stored(fault.key)).get(fault.key, _Stored({}))
            await self._store.delete([file.path for file in stored.files.values()])
        elif fault.rule == MISSING and rows:
            await self._restore(rows[0])

    async def _restore(self, row: Any) -> None:
        files = decode_files(row.files)
        stored = (await self._stored(row.path)).get(row.path, _Stored({}))
        left = [file for file in files if stored.has(file)]
        if not left:
            return
        source = max(left, key=lambda file: (VARIANT_WIDTHS[file.variant], file.bytes))
        with tempfile.TemporaryFile() as copy:
            async for chunk in self._store.read(file_path(row.path, source), 0, source.bytes):
                copy.write(chunk)
            copy.seek(0)
            image = await self._processor.process(copy, "")
        made = {(file.variant, file.format): body for file, body in image.files}
        kept = []
        for file in files:
            body = made.get((file.variant, file.format))
            if stored.has(file):
                kept.append(file)
            elif body is not None:
                kept.append(msgspec.structs.replace(file, bytes=len(body)))
                await self._store.put(file_path(row.path, file), body)
        values = {"files": msgspec.json.encode(kept).decode()}
        async with self._sql.begin() as tx:
            await tx.execute(update(CONTENTS).where(CONTENTS.c.path == row.path).values(**values))


def _missing_files(path: str, missing: list[ImageFile], total: int) -> Violation:
    names = ", ".join(f"{file.variant}.{file.format}" for file in missing)
    if len(missing) == total:
        return Violation(FAMILY, MISSING, path, names, "all files are missing: restore them from a backup", "")
    return Violation(FAMILY, MISSING, path, names, "missing, or of another size", "make them from the largest one left")
