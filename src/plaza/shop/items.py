"""Items: in SQL, read through `inv:<id>`, with the pages that show them purged when they change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import bindparam, select, update

from plaza.caching.row_cache import RowCache
from plaza.caching.row_store import CachedRow, RowData
from plaza.core.errors import NotFound
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.shop.model import Item, ItemChange, ItemsPage, NewItem, clean_name, hundredths, is_item_id, price_text
from plaza.shop.tables import ITEMS

Purge = Callable[[str], Awaitable[object]]

# Cursors of the list of items are told from others' by it.
_LIST = "shop items"
_NEWEST = newest_ids(ITEMS.c.id)
_BY_IDS = select(ITEMS).where(ITEMS.c.id.in_(bindparam("ids", expanding=True)))


def loader(sql: Sql) -> Callable[[Sequence[str]], Awaitable[Mapping[str, RowData]]]:
    """Rows of items, for the row cache."""

    async def load(ids: Sequence[str]) -> dict[str, RowData]:
        # Others may schedule rows too; what no item can be called must not spoil the query for the rest.
        numbers = [int(id) for id in ids if is_item_id(id)]
        return {str(row.id): as_data(row) for row in await sql.fetch_all(_BY_IDS, ids=numbers)}

    return load


def as_data(row: Any) -> RowData:
    """A row as it is copied: the document's fields first."""
    return {
        "qty": row.qty,
        "name": row.name,
        "description": row.description,
        "price": price_text(row.price),
        "id": row.id,
        "version": row.version,
    }


class Items:
    """What is for sale."""

    def __init__(self, sql: Sql, rows: RowCache, purge: Purge) -> None:
        self._sql = sql
        self.rows = rows
        self._purge = purge

    async def create(self, new: NewItem, operation: str) -> Item:
        """Offer an item. The same operation again gives the same item."""
        values = {
            "name": clean_name(new.name),
            "description": new.description,
            "price": hundredths(new.price),
            "qty": new.qty,
            "operation": operation,
            "version": 1,
        }
        statement = self._sql.insert(ITEMS).values(values).on_conflict_do_nothing(index_elements=["operation"])
        async with self._sql.begin() as tx:
            row = (await tx.execute(statement.returning(ITEMS))).one_or_none()
            if row is None:
                row = (await tx.execute(select(ITEMS).where(ITEMS.c.operation == operation))).one()
        data = as_data(row)
        await self.rows.put(str(row.id), data)
        return msgspec.convert(data, Item)

    async def change(self, id: int, change: ItemChange) -> Item:
        """Change an item; its cached row and pages follow at once."""
        columns = change.columns()
        if not columns:
            return await self.read(id)
        statement = update(ITEMS).where(ITEMS.c.id == id).values(version=ITEMS.c.version + 1, **columns)
        async with self._sql.begin() as tx:
            row = (await tx.execute(statement.returning(ITEMS))).one_or_none()
        if row is None:
            raise _unknown(id)
        data = as_data(row)
        await self.refresh([data])
        return msgspec.convert(data, Item)

    async def refresh(self, rows: Sequence[RowData]) -> None:
        """Items were changed in SQL: say so where they are cached."""
        await asyncio.gather(*(self._renew(data["id"], self.rows.put(str(data["id"]), data)) for data in rows))

    async def reread(self, ids: Iterable[int]) -> None:
        """Items were changed in SQL, and whoever did it may have died before saying so."""
        await asyncio.gather(*(self._renew(id, self.rows.reload(str(id))) for id in ids))

    async def _renew(self, id: int, row: Awaitable[object]) -> None:
        """The row first: a page that is computed after the purge must not show the old one."""
        await row
        await self._purge(tag_of(id))

    async def read(self, id: int) -> Item:
        """One item, without counting a view. One round trip if it is cached."""
        return await self.item_of(id, await self.rows.get(str(id)))

    async def item_of(self, id: int, row: CachedRow | None) -> Item:
        """The item of a row."""
        item = await self._whole(str(id), row)
        if item is None:
            raise _unknown(id)
        return item

    async def read_many(self, ids: Sequence[str]) -> list[Item | None]:
        """Items by their ids, None for what is none or gone. One round trip for those that are cached."""
        known = [id for id in ids if is_item_id(id)]
        rows = dict(zip(known, await self.rows.get_many(known), strict=True))
        return [await self._whole(id, rows.get(id)) for id in ids]

    async def _whole(self, id: str, row: CachedRow | None) -> Item | None:
        """Other services may write `inv:<id>` too; what is not a whole item is read again."""
        if row is None:
            return None
        with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
            return _item(row)
        row = await self.rows.reload(id)
        return None if row is None else _item(row)

    async def page(self, page: Page) -> ItemsPage:
        """Items, the newest first."""
        paged = await page_by_position(_LIST, page, ids_in_table(self._sql, _LIST, _NEWEST), self.read_many)
        return ItemsPage(paged.items, paged.pagination)


def _item(row: CachedRow) -> Item:
    return msgspec.structs.replace(msgspec.json.decode(row.json, type=Item), stale=row.stale)


def tag_of(id: int | str) -> str:
    """What the pages that show an item are tagged with."""
    return f"item-{id}"


def _unknown(id: int) -> NotFound:
    return NotFound("There is no such item.", id=id)
