"""The directory of backups: one file per snapshot, which names its chunks, and the chunks of all of them.

A snapshot's file is written last, in one step: without it a backup does not exist. It has its own checksum.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from plaza.backup.chunks import BrokenBackup, ChunkStore, StoredStream, sync_folder, write_file
from plaza.core.errors import OperatorError

FORMAT: Final = 1
# Of the data directory.
SECRET_FILES: Final = ("api-key", "jwt-secret", "data-key")
# The file that a restore locks while it reads.
_READERS: Final = "readers"
# In the root of a disk.
_DISK_FOLDER: Final = "lost+found"


class ValkeyPart(msgspec.Struct, frozen=True):
    """The keys: an RDB for each server or primary."""

    layout: str  # `plain` or `braces`
    database: int
    nodes: tuple[StoredStream, ...]


class SqlPart(msgspec.Struct, frozen=True):
    """The tables: the file of SQLite, or the rows of each table of PostgreSQL."""

    dialect: str
    revisions: tuple[str, ...]
    streams: dict[str, StoredStream]
    columns: dict[str, tuple[str, ...]] = {}  # of PostgreSQL's tables, in the order of their rows
    sequences: dict[str, int] = {}  # the last value of each


class MediaPart(msgspec.Struct, frozen=True):
    """The files of pictures: a stream with one `MediaFile` in JSON per line."""

    index: StoredStream
    files: int
    bytes: int
    deleted: tuple[str, ...] = ()  # contents that were deleted while the backup ran


class MediaFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    stream: StoredStream


class Snapshot(msgspec.Struct, frozen=True):
    """A complete backup."""

    id: str
    plaza: str  # the version that made it
    created_ms: int
    valkey: ValkeyPart
    sql: SqlPart
    media: MediaPart | None
    secrets: StoredStream  # JSON: file → content
    format: int = FORMAT


class _SnapshotFile(msgspec.Struct):
    checksum: str  # SHA-256 of the snapshot
    snapshot: msgspec.Raw


class BackupDirectory:
    """The snapshots in a directory, oldest first by their ids."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chunks = ChunkStore(folder / "chunks")
        self.kept_all = False  # because a restore was reading
        self._snapshots = folder / "snapshots"

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Create the directory if necessary and lock it. Yields a folder for temporary files."""
        spool = self.folder / "unfinished"
        try:
            self._refuse_other_folder()
            for folder in (self.folder, self._snapshots, self.folder / "chunks"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise OperatorError(f"Cannot write to {self.folder}: {error.strerror}.") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(spool, ignore_errors=True)  # of a backup that was killed
            spool.mkdir(mode=0o700)
            try:
                yield spool
            finally:
                shutil.rmtree(spool, ignore_errors=True)
        except BlockingIOError:
            raise OperatorError(f"Another backup to {self.folder} is running. Wait until it ends.") from None
        finally:
            os.close(handle)

    def _refuse_other_folder(self) -> None:
        """Raise `OperatorError` for a folder of something else, whose files would be deleted like old backups."""
        names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
        if names - {_DISK_FOLDER} and not names >= {"snapshots", "chunks"}:
            raise OperatorError(f"{self.folder} contains other files. Give an empty directory, or one of backups.")

    @contextmanager
    def being_read(self) -> Iterator[None]:
        """Keep all backups during the block. Backups go on."""
        try:
            handle = os.open(self.folder / _READERS, os.O_RDONLY | os.O_CREAT, 0o600)
        except OSError:  # a disk that cannot be written, or no directory: nothing is deleted there
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)

    def ids(self) -> list[str]:
        """Return the ids of all complete backups, oldest first."""
        return sorted(file.stem for file in self._snapshots.glob("[!.]*.json") if file.is_file())

    def next_id(self, created_ms: int) -> str:
        """Return the id of a new backup: its time, after all others, also if the clock was set back."""
        at = datetime.fromtimestamp(created_ms / 1000, UTC)
        id = f"{at:%Y%m%dT%H%M%S}{created_ms % 1000:03d}Z"
        last = max(self.ids(), default="")
        return id if id > last else f"{last}a"

    def load(self, id: str = "") -> Snapshot:
        """Read a snapshot, the latest by default. Raises `BrokenBackup` if it is missing or was changed."""
        ids = self.ids()
        if not ids:
            raise BrokenBackup(f"{self.folder} contains no complete backup.")
        if id and id not in ids:
            raise OperatorError(f"{self.folder} contains no backup {id}. It contains {', '.join(ids)}.")
        path = self._snapshots / f"{id or ids[-1]}.json"
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_SnapshotFile)
            if hashlib.sha256(bytes(file.snapshot)).hexdigest() != file.checksum:
                raise BrokenBackup(f"The backup is damaged: {path} was changed. Use another one.")
            return _decoded(bytes(file.snapshot))
        except msgspec.MsgspecError:
            raise BrokenBackup(f"The backup is damaged: {path} is unreadable. Use another one.") from None

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot, whose chunks are stored. It exists when this returns, also after a crash."""
        self.chunks.sync()
        body = msgspec.json.encode(snapshot)
        file = _SnapshotFile(hashlib.sha256(body).hexdigest(), msgspec.Raw(body))
        write_file(self._snapshots / f"{snapshot.id}.json", msgspec.json.encode(file))
        sync_folder(self._snapshots)

    async def chunk_names(self, snapshot: Snapshot) -> set[str]:
        """Return the chunks of a snapshot."""
        streams = [*snapshot.valkey.nodes, *snapshot.sql.streams.values(), snapshot.secrets]
        if snapshot.media is not None:
            streams += [snapshot.media.index, *(file.stream for file in await self.media_files(snapshot))]
        return {name for stream in streams for name in stream.chunks}

    async def media_files(self, snapshot: Snapshot) -> list[MediaFile]:
        """Return the pictures' files of a snapshot."""
        if snapshot.media is None:
            return []
        return _decode_index(await self.chunks.read_all(snapshot.media.index))

    async def keep(self, count: int) -> int:
        """Delete all but the newest backups, and what only they use. Returns their number; 0 if a restore reads."""
        handle = os.open(self.folder / _READERS, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return await self._keep(count)
        except BlockingIOError:
            self.kept_all = True
            return 0
        finally:
            os.close(handle)

    async def _keep(self, count: int) -> int:
        old = self.ids()[:-count]
        for id in old:
            (self._snapshots / f"{id}.json").unlink()
        sync_folder(self._snapshots)
        used: set[str] = set()
        for id in self.ids():
            try:
                used |= await self.chunk_names(self.load(id))
            except BrokenBackup as error:
                raise BrokenBackup(
                    f"The new backup is complete, but an older one is not, so that no old content was deleted. {error} "
                    f"Delete {self._snapshots / f'{id}.json'}."
                ) from None
        self.chunks.delete_all_but(used)
        return len(old)


_decode_index = msgspec.json.Decoder(MediaFile).decode_lines


def _decoded(body: bytes) -> Snapshot:
    made_by = msgspec.json.decode(body, type=_Format)
    if made_by.format > FORMAT:
        raise BrokenBackup(f"Plaza {made_by.plaza} made this backup in a newer format. Restore it with that version.")
    return msgspec.json.decode(body, type=Snapshot)


class _Format(msgspec.Struct):
    format: int
    plaza: str
