"""Lists that are in SQL, the newest first, by the page: ids only ever grow, so an id is a place.

_LIST = newest(ITEMS.c.id)  # made once: building one costs more than running it
await page_by_position(name, page, below(sql, name, _LIST), load)
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, ColumnElement, Select, bindparam, select

from plaza.core.errors import Invalid
from plaza.core.paging import FetchIds, Position, list_checksum
from plaza.core.sql import Sql

# Above every id.
_TOP: Final = 2**63 - 1


def newest_ids(id: Column[Any], *where: ColumnElement[bool]) -> Select[tuple[int]]:
    """The ids for which all this is true, the newest first. `ids_in_table` says from where on, and how many."""
    before = bindparam("before", type_=BigInteger)
    return select(id).where(id < before, *where).order_by(id.desc()).limit(bindparam("count", type_=BigInteger))


def ids_in_table(sql: Sql, name: str, ids: Select[tuple[int]], **values: Any) -> FetchIds[Position]:
    """Places in such a list, for `page_by_position(name, …)`. One look."""
    mark = list_checksum(name)

    async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
        before = _TOP if start is None else _id_at(start)
        rows = await sql.fetch_all(ids, before=before, count=count, **values)
        return [(str(id), Position(mark, id, str(id))) for (id,) in rows]

    return after


def _id_at(place: Position) -> int:
    if not 0 <= place.score <= _TOP:  # nobody was given that one
        raise Invalid("This is no cursor of ours.", field="cursor")
    return int(place.score)
