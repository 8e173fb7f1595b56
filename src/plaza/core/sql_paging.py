"""Pages of SQL tables, newest or oldest first: ids only grow, so an id is a position.

_LIST = newest_ids(ITEMS.c.id)  # built once: building a statement costs more than running it
await page_by_position(name, page, ids_in_table(sql, name, _LIST), load)
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, ColumnElement, Select, bindparam, select

from plaza.core.errors import Invalid
from plaza.core.paging import FetchIds, Position, list_checksum
from plaza.core.sql import Sql

# Greater than every id.
MAX_ID: Final = 2**63 - 1


def newest_ids(id: Column[Any], *where: ColumnElement[bool]) -> Select[tuple[int]]:
    """Return a statement for the ids that match, newest first. `ids_in_table` binds the start and the number."""
    before = bindparam("before", type_=BigInteger)
    return select(id).where(id < before, *where).order_by(id.desc()).limit(bindparam("count", type_=BigInteger))


def oldest_ids(id: Column[Any], *where: ColumnElement[bool]) -> Select[tuple[int]]:
    """Return such a statement for the ids that match, oldest first. `ids_in_table` is told `oldest_first`."""
    after = bindparam("after", type_=BigInteger)
    return select(id).where(id > after, *where).order_by(id).limit(bindparam("count", type_=BigInteger))


def ids_in_table(
    sql: Sql, name: str, ids: Select[tuple[int]], *, oldest_first: bool = False, **values: Any
) -> FetchIds[Position]:
    """Read ids with such a statement, for `page_by_position(name, …)`. One short read."""
    list_id = list_checksum(name)

    async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
        if oldest_first:
            bound = {"after": 0 if start is None else _id_at(start)}
        else:
            bound = {"before": MAX_ID if start is None else _id_at(start)}
        rows = await sql.fetch_all(ids, count=count, **bound, **values)
        return [(str(id), Position(list_id, id, str(id))) for (id,) in rows]

    return after


def _id_at(position: Position) -> int:
    if not 0 <= position.score <= MAX_ID:
        raise Invalid("Invalid cursor. Request the first page again.", field="cursor")
    return int(position.score)
