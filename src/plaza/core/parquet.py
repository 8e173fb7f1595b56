"""Writes Apache Parquet files as a stream: a row group at a time, with the standard library alone.

Columns are required and of four types. Values are in the plain encoding. Each column of a row group is one page,
compressed with gzip. That is a small part of the format, and every reader understands it.
"""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct

MEDIA_TYPE: Final = "application/vnd.apache.parquet"
ROWS_PER_GROUP: Final = 10_000

_MAGIC: Final = b"PAR1"
_GZIP: Final = 2
_PLAIN: Final = 0
_RLE: Final = 3
_DATA_PAGE: Final = 0
# Types of Thrift's compact protocol, in which Parquet writes its metadata.
_I32: Final = 5
_I64: Final = 6
_BINARY: Final = 8
_LIST: Final = 9
_STRUCT: Final = 12


class ColumnType(Enum):
    """A type of column: Parquet's physical type, and the converted type that says what it means."""

    FLAG = (0, None)
    INTEGER = (2, None)
    TIME_MS = (2, 9)  # TIMESTAMP_MILLIS
    TEXT = (6, 0)  # UTF8

    @property
    def physical(self) -> int:
        return int(self.value[0])

    @property
    def converted(self) -> int | None:
        return None if self.value[1] is None else int(self.value[1])


class ParquetColumn(Struct, frozen=True):
    name: str
    type: ColumnType

    def encode(self, values: Sequence[Any]) -> bytes:
        """Return values in the plain encoding."""
        if self.type is ColumnType.FLAG:
            bits = bytearray((len(values) + 7) // 8)
            for i, value in enumerate(values):
                bits[i // 8] |= bool(value) << (i % 8)
            return bytes(bits)
        if self.type is ColumnType.TEXT:
            texts = [value.encode("utf-8", "replace") for value in values]
            return b"".join(struct.pack("<I", len(text)) + text for text in texts)
        return struct.pack(f"<{len(values)}q", *values)


async def write_parquet(
    columns: Sequence[ParquetColumn], rows: AsyncIterator[Sequence[Any]], rows_per_group: int = ROWS_PER_GROUP
) -> AsyncIterator[bytes]:
    """Yield a file with these rows. In memory are the rows of one group, and a few bytes for each group before."""
    yield _MAGIC
    size, count, groups = len(_MAGIC), 0, list[bytes]()
    async for some in _in_groups(rows, rows_per_group):
        # In a thread: encoding and compressing a group takes tens of milliseconds.
        data, group = await asyncio.to_thread(_row_group, columns, some, size)
        size, count = size + len(data), count + len(some)
        groups.append(group)
        yield data
    footer = _footer(columns, count, groups)
    yield footer + struct.pack("<I", len(footer)) + _MAGIC


async def _in_groups(rows: AsyncIterator[Sequence[Any]], size: int) -> AsyncIterator[list[Sequence[Any]]]:
    group: list[Sequence[Any]] = []
    async for row in rows:
        group.append(row)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _row_group(columns: Sequence[ParquetColumn], rows: Sequence[Sequence[Any]], offset: int) -> tuple[bytes, bytes]:
    """Return the pages of a row group that begins at an offset, and its metadata."""
    data, chunks = bytearray(), list[bytes]()
    for i, column in enumerate(columns):
        plain = column.encode([row[i] for row in rows])
        packed = gzip.compress(plain, 6, mtime=0)
        page = _struct((1, _I32, len(rows)), (2, _I32, _PLAIN), (3, _I32, _RLE), (4, _I32, _RLE))
        header = _struct((1, _I32, _DATA_PAGE), (2, _I32, len(plain)), (3, _I32, len(packed)), (5, _STRUCT, page))
        at = offset + len(data)
        data += header + packed
        metadata = _struct(
            (1, _I32, column.type.physical),
            (2, _LIST, (_I32, [_PLAIN])),
            (3, _LIST, (_BINARY, [column.name])),
            (4, _I32, _GZIP),
            (5, _I64, len(rows)),
            (6, _I64, len(header) + len(plain)),
            (7, _I64, len(header) + len(packed)),
            (9, _I64, at),
        )
        chunks.append(_struct((2, _I64, at), (3, _STRUCT, metadata)))
    return bytes(data), _struct((1, _LIST, (_STRUCT, chunks)), (2, _I64, len(data)), (3, _I64, len(rows)))


def _footer(columns: Sequence[ParquetColumn], rows: int, groups: Sequence[bytes]) -> bytes:
    schema = [_struct((4, _BINARY, "rows"), (5, _I32, len(columns)))]
    for column in columns:
        fields: list[tuple[int, int, Any]] = [
            (1, _I32, column.type.physical),
            (3, _I32, 0),  # required
            (4, _BINARY, column.name),
        ]
        if column.type.converted is not None:
            fields.append((6, _I32, column.type.converted))
        schema.append(_struct(*fields))
    return _struct(
        (1, _I32, 1),
        (2, _LIST, (_STRUCT, schema)),
        (3, _I64, rows),
        (4, _LIST, (_STRUCT, groups)),
        (6, _BINARY, "plaza"),
    )


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _value(type: int, value: Any) -> bytes:
    if type in (_I32, _I64):
        return _varint(value << 1)  # zigzag; no number here is negative
    if type == _BINARY:
        text = str(value).encode()
        return _varint(len(text)) + text
    if type == _LIST:
        item_type, items = value
        head = (
            bytes([len(items) << 4 | item_type]) if len(items) < 15 else bytes([0xF0 | item_type]) + _varint(len(items))
        )
        return head + b"".join(_value(item_type, item) for item in items)
    return bytes(value)  # a struct that is encoded already


def _struct(*fields: tuple[int, int, Any]) -> bytes:
    """Return a Thrift struct in the compact protocol, from (id, type, value) in ascending order of ids."""
    out, last = bytearray(), 0
    for id, type, value in fields:
        out.append((id - last) << 4 | type)
        out += _value(type, value)
        last = id
    return bytes(out) + b"\0"
