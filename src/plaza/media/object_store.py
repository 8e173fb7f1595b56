"""The files of pictures: a folder in the data directory, or a bucket of S3, Google Cloud or Azure, through obstore.

Files are written once and never changed. In a folder they are read directly, a chunk at a time, because that costs a
tenth of a way through a library made for networks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store, from_url

from plaza.core.errors import SettingError, Unavailable
from plaza.core.settings import Settings

# What is in memory of a file that is being sent.
CHUNK_BYTES: Final = 64 * 1024
# Long enough to load a picture from a redirect; short, because a banned picture can be loaded until then.
SIGNED_SECONDS: Final = 60

_URL_FORMAT: Final = "PLAZA_MEDIA_URL must look like s3://bucket/prefix, gs://bucket/prefix or az://container/prefix."

# Options of the HTTP client; the others are options of the store.
_CLIENT_OPTIONS: Final = frozenset(("allow_http", "connect_timeout", "proxy_url", "timeout"))
# What obstore raises for an option that it cannot read. The class cannot be imported and is no `Exception`.
_PANIC: Final = "PanicException"


class StoredFile(NamedTuple):
    path: str
    size: int
    modified_ms: int


class MissingFile(Exception):
    """A file is not in the store."""


class MediaStore:
    """The object store of pictures. If it cannot be reached, methods raise `Unavailable`."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    @classmethod
    def open(cls, settings: Settings) -> MediaStore:
        """Open the store that the settings name. Nothing is sent yet."""
        if not settings.media_url:
            folder = settings.data_dir / "media"
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return cls(LocalStore(prefix=folder.resolve()), folder)
        return cls(_bucket(settings.media_url))

    async def put(self, path: str, data: bytes) -> None:
        """Store a file. It is complete or absent, also after a crash of the machine."""
        with _translated(path):
            await obstore.put_async(self._store, path, data)
        if self._folder is not None:
            await asyncio.to_thread(_sync, self._folder / path)

    async def read(self, path: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the bytes of a file from `start` to before `end`, in chunks."""
        if self._folder is not None:
            for chunk in _chunks(self._folder / path, start, end):
                yield chunk
                await asyncio.sleep(0)
            return
        with _translated(path):
            found = await obstore.get_async(self._store, path, options={"range": (start, end)})
            async for data in found.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(data)

    def read_small(self, path: str, start: int, end: int) -> bytes | None:
        """Return a part of at most one chunk at once, from a folder; None if it must be read in steps.

        It blocks for as long as the disk does, as a short read of SQLite.
        """
        if self._folder is None or end - start > CHUNK_BYTES:
            return None
        return next(_chunks(self._folder / path, start, end), b"")

    async def folders(self) -> set[str]:
        """Return the names of the folders at the top."""
        with _translated(""):
            found = await obstore.list_with_delimiter_async(self._store)
        return {str(prefix).strip("/") for prefix in found["common_prefixes"]}

    async def list(self, folder: str = "") -> AsyncIterator[list[StoredFile]]:
        """Yield the files in a folder of the store, or all, in pages."""
        with _translated(folder):
            async for page in obstore.list(self._store, f"{folder}/" if folder else None, chunk_size=500):
                yield [_stored_file(meta) for meta in page]

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete files. A missing one is no error."""
        with _translated(""), contextlib.suppress(FileNotFoundError):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    await obstore.delete_async(self._store, path)
        if self._folder is not None:
            for folder in {str(Path(path).parent) for path in paths}:
                with contextlib.suppress(OSError):  # not empty, or gone
                    (self._folder / folder).rmdir()

    async def signed_url(self, path: str) -> str | None:
        """Return an address at which a client can load a file for a minute; None if the store has no addresses."""
        if not isinstance(self._store, S3Store | GCSStore | AzureStore):
            return None
        with _translated(path):
            return await obstore.sign_async(self._store, "GET", path, timedelta(seconds=SIGNED_SECONDS))


def _bucket(url: str) -> ObjectStore:
    """Open a bucket. Parameters of the URL are options of the store, such as `endpoint`; secrets are not in it."""
    parts = urlsplit(url)
    if parts.scheme not in ("s3", "gs", "az", "azure"):
        raise SettingError(_URL_FORMAT)  # without the given URL, which could contain a secret
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    client = {name: options.pop(name) for name in _CLIENT_OPTIONS & options.keys()}
    if str(options.get("endpoint", "")).startswith("http://"):
        client["allow_http"] = "true"
    given = {**options, "client_options": client} if client else options
    try:
        return from_url(parts._replace(query="").geturl(), **given)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        named = f" Check its options: {', '.join(sorted({*options, *client}))}." if options or client else ""
        raise SettingError(f"{_URL_FORMAT} Its store cannot be opened.{named}") from None


def _stored_file(meta: Any) -> StoredFile:
    return StoredFile(meta["path"], meta["size"], round(meta["last_modified"].timestamp() * 1000))


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise MissingFile(path) from None
    except (BaseError, OSError) as error:
        raise Unavailable("The store of pictures is unavailable. Retry later.") from error


def _chunks(file: Path, start: int, end: int) -> Iterator[bytes]:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingFile(str(file)) from None
    try:
        while start < end and (data := os.pread(handle, min(CHUNK_BYTES, end - start), start)):
            start += len(data)
            yield data
    finally:
        os.close(handle)


def _sync(file: Path) -> None:
    """Wait until a file and its name are on disk: obstore leaves that to the operating system."""
    for path in (file, file.parent, file.parent.parent):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
