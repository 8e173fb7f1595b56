"""ZIP archives that are too large for memory: each file is read while it is sent."""

from __future__ import annotations

import io
import time
from collections.abc import AsyncIterator
from typing import Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from plaza.core.streams import started

# A chunk is sent when it has this size: few writes, little memory.
CHUNK_BYTES: Final = 65_536


class ArchivedFile(NamedTuple):
    """A file in an archive. `compress` it unless its format is compressed already."""

    name: str
    modified_ms: int
    chunks: AsyncIterator[bytes]
    compress: bool = False


async def stream_zip(files: AsyncIterator[ArchivedFile]) -> AsyncIterator[bytes]:
    """Return the chunks of an archive. The first one is read already, so an error at the start is raised here.

    In memory are one chunk and, for the list at the archive's end, the names of its files.
    """
    return await started(_chunks(files))


async def _chunks(files: AsyncIterator[ArchivedFile]) -> AsyncIterator[bytes]:
    output = _Output()
    with ZipFile(output, "w") as archive:
        async for file in files:
            info = ZipInfo(file.name, time.gmtime(file.modified_ms / 1000)[:6])
            info.compress_type = ZIP_DEFLATED if file.compress else ZIP_STORED
            with archive.open(info, "w", force_zip64=file.compress) as entry:
                async for chunk in file.chunks:
                    entry.write(chunk)
                    if output.size >= CHUNK_BYTES:
                        yield output.take()
    yield output.take()


class _Output(io.RawIOBase):
    """A file that can only be written. It keeps what was written until it is taken."""

    def __init__(self) -> None:
        self._written = bytearray()

    @property
    def size(self) -> int:
        return len(self._written)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken
