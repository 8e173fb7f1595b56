"""What a part of a community offers to the export and the import, and how table rows become records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    RowMapping,
    String,
    Table,
    collate,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError

from plaza.core.async_engine import AsyncConnection
from plaza.core.errors import Invalid
from plaza.core.http.problem_details import invalid_from_msgspec
from plaza.core.sql import Sql
from plaza.social.inbound_sync import Status, SyncResult

Record = dict[str, Any]
_NO_ID: Final = Column(String)
MAX_INT: Final = 2**63 - 1
MAX_SMALL_INT: Final = 2**31 - 1


class CommunityPart(Protocol):
    """Some types of records, in the order in which they can be imported."""

    kinds: Sequence[str]

    def snapshot(self) -> AbstractAsyncContextManager[None]:
        """Read all tables as of one moment, in every `export` of the block."""
        return nullcontext()

    def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield all records of a type, always in the same order."""
        ...

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Import records of a type. What exists already and is equal stays."""
        ...


def in_thread_order(comments: Mapping[str, tuple[int, str | None]]) -> list[str]:
    """Return the ids of comments, given by their time and what they reply to: by time, a reply after its parent."""
    order: dict[str, tuple[int, int]] = {}

    def position(id: str) -> tuple[int, int]:
        at, parent = comments[id]
        above = order.get(parent or "", (0, 0))
        return (at, 0) if at > above[0] else (above[0], above[1] + 1)

    for id in sorted(comments, key=lambda id: comments[id][0]):
        chain = [id]  # replies above their parents, which may be younger if another service wrote them
        while (parent := comments[chain[-1]][1]) in comments and parent not in order and parent not in chain:
            chain.append(str(parent))
        for link in reversed(chain):
            order[link] = position(link)
    return sorted(comments, key=lambda id: (order[id], id))


@dataclass(frozen=True, slots=True)
class RowRecords:
    """The records of one table: a Struct with the columns that are exported, by their names."""

    table: Table
    struct: type[msgspec.Struct]
    # How a column's value is written in a record, and how it is read back.
    write: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    read: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    # Columns that a record does not have, from the row.
    added: Callable[[Record], Record] = lambda row: {}

    def to_record(self, row: RowMapping) -> Record:
        return {name: self.write.get(name, _same)(row[name]) for name in self.struct.__struct_fields__}

    def to_row(self, record: Any) -> Record:
        """Return the row of a record. Raises `Invalid` with the field that is wrong."""
        try:
            values = msgspec.to_builtins(msgspec.convert(record, self.struct))
        except msgspec.ValidationError as error:
            raise invalid_from_msgspec(error) from None
        row = {name: self.read.get(name, _same)(value) for name, value in values.items()}
        for name, value in row.items():
            _require_storable(self.table.c[name], value)
        return row


def _require_storable(column: Column[Any], value: Any) -> None:
    """Raise `Invalid` for what a database would refuse: PostgreSQL has limits that SQLite has not."""
    is_small = isinstance(column.type, Integer) and not isinstance(column.type, BigInteger)
    largest = MAX_SMALL_INT if is_small else MAX_INT
    if isinstance(value, int) and not -largest <= value <= largest:
        raise Invalid("The number is too large.", field=column.name)
    if isinstance(value, str):
        longest = getattr(column.type, "length", None)
        if "\0" in value or (longest is not None and len(value) > longest):
            raise Invalid("The text is too long, or has a character that cannot be stored.", field=column.name)


def _same(value: Any) -> Any:
    return value


class TablePart(CommunityPart):
    """Records that are rows of tables. A table comes after those that it refers to."""

    def __init__(self, sql: Sql, tables: Mapping[str, RowRecords]) -> None:
        self._sql = sql
        self._tables = tables
        self._tx: AsyncConnection | None = None  # of a snapshot
        self.kinds: Sequence[str] = list(tables)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        async with self._sql.read() as self._tx:
            try:
                yield
            finally:
                self._tx = None

    async def export(self, kind: str) -> AsyncIterator[Record]:
        """Yield the rows of a table by primary key. Only in a snapshot."""
        assert self._tx is not None, "a sale changes the stock and adds an order: both are in the file, or none"
        rows = self._tables[kind]
        keys = [self._binary(column) for column in rows.table.primary_key]
        found = await self._tx.stream(select(rows.table).order_by(*keys))
        async for row in found.mappings():
            yield rows.to_record(row)

    def _binary(self, column: Column[Any]) -> ColumnElement[Any]:
        """Compare texts byte by byte, so that the order is the same in every database and locale."""
        is_text = self._sql.dialect == "postgresql" and isinstance(column.type, String)
        return collate(column, "C") if is_text else column

    async def apply(self, kind: str, records: Sequence[Any]) -> list[SyncResult]:
        """Insert rows with their ids, in one transaction. A row that exists with other values is an error."""
        rows = self._tables[kind]
        async with self._sql.begin() as tx:
            results = [await self._apply_one(tx, rows, index, record) for index, record in enumerate(records)]
            if self._sql.dialect == "postgresql" and isinstance(rows.table.c.get("id", _NO_ID).type, Integer):
                await _raise_sequence(tx, rows.table)
        return results

    async def _apply_one(self, tx: AsyncConnection, rows: RowRecords, index: int, record: Any) -> SyncResult:
        try:
            async with tx.begin_nested():
                return SyncResult(index, await _insert(tx, rows, rows.to_row(record)))
        except Invalid as error:
            return SyncResult(index, "error", error.detail, error.code, error.extra.get("field"))
        except IntegrityError:
            return SyncResult(index, "error", "It refers to a record that does not exist, or repeats another one.")


async def _insert(tx: AsyncConnection, rows: RowRecords, row: Record) -> Status:
    keys = [column == row[column.name] for column in rows.table.primary_key]
    known = (await tx.execute(select(rows.table).where(*keys))).mappings().one_or_none()
    if known is None:
        await tx.execute(insert(rows.table).values({**row, **rows.added(row)}))
        return "created"
    for name, value in row.items():
        if known[name] != value:
            raise Invalid("A record with this id exists and has another value.", field=name)
    return "unchanged"


async def _raise_sequence(tx: AsyncConnection, table: Table) -> None:
    """Let the next id of PostgreSQL come after those that were given."""
    last = (await tx.execute(select(func.max(table.c.id)))).scalar()
    if last is not None:
        statement = text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)")
        await tx.execute(statement, {"name": table.name, "last": last})
