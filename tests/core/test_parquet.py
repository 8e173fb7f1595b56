"""Parquet files, read back by another implementation."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pyarrow.parquet
import pytest

from plaza.core.parquet import ColumnType, ParquetColumn, write_parquet

COLUMNS = (
    ParquetColumn("name", ColumnType.TEXT),
    ParquetColumn("at", ColumnType.TIME_MS),
    ParquetColumn("count", ColumnType.INTEGER),
    ParquetColumn("open", ColumnType.FLAG),
)


async def rows_of(count: int) -> AsyncIterator[Sequence[Any]]:
    for n in range(count):
        yield (f"viewer-{n} é本", 1_700_000_000_000 + n, n * 10**12, n % 3 == 0)


@pytest.mark.parametrize(("count", "per_group"), [(0, 10), (1, 10), (10, 10), (47, 10), (300, 20)])
async def test_another_implementation_reads_what_was_written(count: int, per_group: int) -> None:
    chunks = [chunk async for chunk in write_parquet(COLUMNS, rows_of(count), per_group)]
    assert len(chunks) == 2 + -(-count // per_group), "the magic bytes, one chunk per row group, the footer"
    file = pyarrow.parquet.ParquetFile(io.BytesIO(b"".join(chunks)))
    assert file.num_row_groups == -(-count // per_group)
    table = file.read()
    assert table.column_names == [column.name for column in COLUMNS]
    expected = [row async for row in rows_of(count)]
    assert table.column("name").to_pylist() == [row[0] for row in expected]
    assert table.column("at").cast("int64").to_pylist() == [row[1] for row in expected]
    assert str(table.schema.field("at").type).startswith("timestamp[ms")
    assert table.column("count").to_pylist() == [row[2] for row in expected]
    assert table.column("open").to_pylist() == [row[3] for row in expected]
