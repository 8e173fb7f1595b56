"""Reads `multipart/form-data` as it arrives: fields into memory, files into temporary files on disk.

A file is never completely in memory, and has no name on disk: when the request ends, or the process dies, it is gone.

    @route.post("/media", access=USER, status=201, body_limit=…)
    async def upload(actor: Actor, body: Multipart[UploadForm], uploads: Uploads) -> Picture: ...

`Multipart[Form]` is a form with one file, called `file`, and the text fields of the Struct `Form`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct, field
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from plaza.core.errors import BadRequest, Invalid, TooLarge
from plaza.core.http.body_reader import body_chunks
from plaza.core.http.exchange import Exchange
from plaza.core.http.problem_details import UnsupportedMediaType, invalid_from_msgspec

F = TypeVar("F", bound=msgspec.Struct)

MEDIA_TYPE: Final = "multipart/form-data"

# Far more than any form has.
MAX_PARTS: Final = 60
# Text fields together: the longest text has 10,000 characters of up to four bytes.
MAX_FIELD_BYTES: Final = 256 * 1024
# What the parts' headers and boundaries may add to the files of a form.
OVERHEAD_BYTES: Final = MAX_FIELD_BYTES + 64 * 1024
# Files are written to disk in blocks of this size.
BLOCK_BYTES: Final = 256 * 1024


class UploadedFile(Struct):
    """A file in a form. `content` is open and at its start."""

    field: str
    filename: str
    content: IO[bytes]
    size: int = 0


class FormData(Struct):
    """The text fields and files of a form. `digest` is the same for the same contents, whatever the boundary."""

    fields: dict[str, str] = field(default_factory=dict)
    files: list[UploadedFile] = field(default_factory=list)
    digest: bytes = b""

    def close(self) -> None:
        """Remove the files."""
        for file in self.files:
            file.content.close()


class Multipart(Generic[F]):
    """A form with one file, as a handler takes it."""

    __slots__ = ("fields", "file")

    def __init__(self, fields: F, file: UploadedFile) -> None:
        self.fields = fields
        self.file = file

    @classmethod
    def from_form(cls, form: FormData, kind: type[F]) -> Multipart[F]:
        """Check that a form has one file called `file` and the fields of `kind`."""
        if len(form.files) != 1 or form.files[0].field != "file":
            raise Invalid("Send exactly one file, in the field `file`.", field="file")
        try:
            return cls(msgspec.convert(form.fields, kind, strict=False), form.files[0])
        except msgspec.ValidationError as error:
            raise invalid_from_msgspec(error) from error


def is_multipart(headers: Mapping[str, str]) -> bool:
    """Whether a request's body is a form with files."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == MEDIA_TYPE


async def read_form(exchange: Exchange, limit: int, directory: Path | None) -> FormData:
    """Read a form of at most `limit` bytes. Its files are temporary files in `directory`; the caller closes it.

    Without a directory its files are skipped.
    """
    headers = exchange.headers
    _, options = parse_options_header(headers.get("content-type", ""))
    if not is_multipart(headers) or not options.get(b"boundary"):
        raise UnsupportedMediaType(f"Send a form as {MEDIA_TYPE}, with a boundary.")
    reader = _FormReader(directory)
    with contextlib.ExitStack() as on_error:
        on_error.callback(reader.form.close)
        try:
            parser = MultipartParser(options[b"boundary"], reader.callbacks())
            async for chunk in body_chunks(exchange, limit):
                parser.write(chunk)
                await reader.write_blocks(BLOCK_BYTES)
            parser.finalize()
        except FormParserError as error:
            raise BadRequest("The form is not valid multipart/form-data.") from error
        await reader.finish()
        on_error.pop_all()
    return reader.form


class _FormReader:
    """Collects the parts of a form. The parser calls it; what it has collected of a file is written between calls."""

    def __init__(self, directory: Path | None) -> None:
        self.form = FormData()
        self._directory = directory
        self._hash = hashlib.sha256()
        self._header_name = b""
        self._header_value = b""
        self._disposition = b""
        self._parts = self._part_bytes = 0
        self._field: str | None = None  # the name of the text field that is being read
        self._file: UploadedFile | None = None  # the file that is being read
        self._text = bytearray()
        self._text_bytes = 0
        self._block = bytearray()  # of the file that is being read
        self._unwritten: list[tuple[UploadedFile, bytes]] = []
        self._is_complete = False

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin_part,
            "on_header_field": self._add_header_name,
            "on_header_value": self._add_header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end_form,
        }

    async def write_blocks(self, block_bytes: int) -> None:
        """Write what was collected of files, if it is a block. A thread does it, because a disk can be slow."""
        if len(self._block) >= block_bytes:
            self._take_block()
        for file, block in self._unwritten:
            await asyncio.to_thread(file.content.write, block)
        self._unwritten.clear()

    async def finish(self) -> None:
        """Write the rest and go back to the start of each file."""
        if not self._is_complete:
            raise BadRequest("The form ends before its last boundary. Send it again.")
        await self.write_blocks(0)
        for file in self.form.files:
            await asyncio.to_thread(file.content.flush)
            file.content.seek(0)
        self.form.digest = self._hash.digest()

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BadRequest(f"The form has more than {MAX_PARTS} parts.")
        self._disposition, self._part_bytes = b"", 0

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name = self._header_value = b""

    def _end_headers(self) -> None:
        kind, options = parse_options_header(self._disposition)
        name = _decode(options.get(b"name", b""))
        if kind != b"form-data" or not name:
            raise BadRequest("A part of the form has no name.")
        filename = options.get(b"filename")
        self._hash.update(msgspec.json.encode([name, filename]))
        self._field = self._file = None
        if filename is None:
            if name in self.form.fields:
                raise Invalid(f"The field {name[:100]} was sent twice.", field=name[:100])
            self._field = name
        elif self._directory is not None:
            content = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 closed with the form
            self._file = UploadedFile(name, _decode(filename), content)
            self.form.files.append(self._file)

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        part = data[start:end]
        self._part_bytes += len(part)
        self._hash.update(part)
        if self._file is not None:
            self._block += part
            self._file.size += len(part)
        elif self._field is not None:
            self._text_bytes += len(part)
            if self._text_bytes > MAX_FIELD_BYTES:
                raise TooLarge(f"The text fields have more than {MAX_FIELD_BYTES} bytes.", limit=MAX_FIELD_BYTES)
            self._text += part

    def _end_part(self) -> None:
        self._hash.update(b"%d\n" % self._part_bytes)
        if self._field is not None:
            self.form.fields[self._field] = _decode(bytes(self._text))
            self._text.clear()
        self._take_block()

    def _end_form(self) -> None:
        self._is_complete = True

    def _take_block(self) -> None:
        if self._block and self._file is not None:
            self._unwritten.append((self._file, bytes(self._block)))
            self._block.clear()


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("The form is not valid UTF-8.") from error
