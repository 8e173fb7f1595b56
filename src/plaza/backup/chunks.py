"""The chunks of backups: pieces of streams, stored once by their SHA-256, so that a second backup writes what is new.

A stream is cut where its content says so, not at fixed places: after an insertion the following chunks are the same
again. A place to cut is a zero byte or a line end before which 32 bytes have a certain checksum.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from plaza.core.errors import OperatorError

# Small, because keys change here and there: with 0.1% of them changed, chunks of eight times the size wrote 80% of all
# keys again, these a quarter. Each is a file, so much smaller ones would be too many.
MIN_CHUNK_BYTES: Final = 1 << 13
MAX_CHUNK_BYTES: Final = 1 << 17
# One in 256 possible places: chunks have about 30 kB.
_CUT_MASK: Final = 0xFF
_WINDOW_BYTES: Final = 32
# Not every byte of a long run of zeros.
_POSSIBLE_CUT: Final = re.compile(rb"[\x00\n](?=[^\x00])")
# Most of a backup is text and small numbers. Higher levels take several times as long and save a tenth.
_COMPRESSION_LEVEL: Final = 1


class BrokenBackup(OperatorError):
    """A backup is incomplete or was changed. Nothing was restored from it."""


class StoredStream(msgspec.Struct, frozen=True):
    """A stream in a backup: its length, and its chunks in order."""

    bytes: int
    chunks: tuple[str, ...]


class ChunkStore:
    """The folder of chunks of a backup directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.written_bytes = 0  # of new chunks, compressed, since this object exists
        self.replaced = 0  # chunks that were damaged or missing, and are complete again
        self._checked: set[str] = set()  # chunks that were written or read since this object exists

    async def put(self, stream: AsyncIterable[bytes]) -> StoredStream:
        """Store a stream. Only chunks that are not there yet are written. In memory are at most two chunks."""
        names: list[str] = []
        size, held = 0, bytearray()
        async for data in stream:
            size += len(data)
            held += data
            while len(held) >= MAX_CHUNK_BYTES:
                names.append(self._put_chunk(_cut_off(held)))
        while held:
            names.append(self._put_chunk(_cut_off(held)))
        return StoredStream(size, tuple(names))

    def has(self, stream: StoredStream) -> bool:
        """Whether the chunks of a stream are there and undamaged. Each is read once."""
        return all(self._is_intact(name) for name in stream.chunks)

    async def read(self, stream: StoredStream) -> AsyncIterator[bytes]:
        """Yield a stream, chunk by chunk. Raises `BrokenBackup` if one is missing or was changed."""
        for name in stream.chunks:
            yield self._read_chunk(name)

    async def read_all(self, stream: StoredStream) -> bytes:
        """Return a short stream."""
        return b"".join([chunk async for chunk in self.read(stream)])

    def check(self, names: Iterable[str]) -> Iterator[int]:
        """Read chunks and compare them with their checksums. Yields the length of each."""
        for name in names:
            yield len(self._read_chunk(name))

    def sync(self) -> None:
        """Wait until new chunks are on disk. All at once, because a wait for each takes several times as long."""
        os.sync()

    def delete_all_but(self, used: set[str]) -> int:
        """Delete the chunks that no snapshot uses. Returns their number."""
        unused = [file for file in self._folder.glob("*/*") if file.name not in used]
        for file in unused:
            file.unlink()
        return len(unused)

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name

    def _put_chunk(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        if not self._is_intact(name):
            path = self._path(name)
            self.replaced += path.exists()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            compressed = zlib.compress(data, _COMPRESSION_LEVEL)
            write_file(path, compressed, syncs=False)
            self._checked.add(name)
            self.written_bytes += len(compressed)
        return name

    def _is_intact(self, name: str) -> bool:
        """Whether a chunk is there and undamaged: otherwise all later backups would depend on it."""
        if name not in self._checked:
            try:
                self._read_chunk(name)
            except BrokenBackup:
                return False
            self._checked.add(name)
        return True

    def _read_chunk(self, name: str) -> bytes:
        try:
            data = zlib.decompress(self._path(name).read_bytes())
        except FileNotFoundError:
            raise BrokenBackup(f"The backup is incomplete: {self._path(name)} is missing. Use another one.") from None
        except zlib.error:
            data = b""
        if hashlib.sha256(data).hexdigest() != name:
            raise BrokenBackup(f"The backup is damaged: {self._path(name)} was changed. Use another one.")
        return data


def _cut_off(held: bytearray) -> bytes:
    """Remove the first chunk from the bytes that are left, and return it."""
    chunk = bytes(held[:MAX_CHUNK_BYTES])
    for match in _POSSIBLE_CUT.finditer(chunk, MIN_CHUNK_BYTES):
        if zlib.crc32(chunk[match.end() - _WINDOW_BYTES : match.end()]) & _CUT_MASK == 0:
            chunk = chunk[: match.end()]
            break
    del held[: len(chunk)]
    return chunk


def write_file(path: Path, data: bytes, *, syncs: bool = True) -> None:
    """Write a file that only this user can read. It is on disk, and complete or absent; without `syncs` only soon."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            if syncs:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)  # a full disk needs its space
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
