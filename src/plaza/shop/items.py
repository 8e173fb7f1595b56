"""Items: stored in SQL, read through `inv:<id>`. A change also purges the pages that show the item."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from sqlalchemy import bindparam, select, update

from plaza.caching.row_cache import RowCache
from plaza.caching.row_store import CachedRow, LoadRows, RowData
from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import API, Actor
from plaza.core.clock import Clock
from plaza.core.errors import Invalid, NotFound
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Page, page_by_position
from plaza.core.pictures import ITEM, Pictures, PictureUse, decode_pictures, encode_pictures
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.sql_idempotency import insert_once
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.shop.events import STREAM, ItemCreated, ItemUpdated
from plaza.shop.model import (
    Item,
    ItemChange,
    ItemChanged,
    ItemsPage,
    NewItem,
    clean_name,
    hundredths,
    is_item_id,
    is_price,
    price_text,
)
from plaza.shop.tables import ITEMS

Purge = Callable[[str], Awaitable[object]]

# The name of the list in its cursors.
_LIST = "shop items"
_IS_SOLD = ITEMS.c.withdrawn_ms.is_(None)
_NEWEST_IDS = newest_ids(ITEMS.c.id, _IS_SOLD)
_NAMES = select(ITEMS.c.id, ITEMS.c.name).where(ITEMS.c.id.in_(bindparam("ids", expanding=True)))
_BY_IDS = select(ITEMS).where(ITEMS.c.id.in_(bindparam("ids", expanding=True)), _IS_SOLD)


def row_loader(sql: Sql) -> LoadRows:
    """Return the function that loads items for the row cache. A withdrawn item has no row."""

    async def load(ids: Sequence[str]) -> dict[str, RowData]:
        # Other services may schedule rows too. An id that is not a number must not break the query for the others.
        numbers = [int(id) for id in ids if is_item_id(id)]
        return {str(row.id): row_data(row) for row in await sql.fetch_all(_BY_IDS, ids=numbers)}

    return load


def row_data(row: Any) -> RowData:
    """Return a row as it is cached: the documented fields first."""
    data = {
        "qty": row.qty,
        "name": row.name,
        "description": row.description,
        "price": price_text(row.price),
        "id": row.id,
        "version": row.version,
    }
    if row.media:
        data["media"] = msgspec.to_builtins(decode_pictures(row.media))
    return data


class Items:
    """The items of the shop."""

    def __init__(self, sql: Sql, rows: RowCache, purge: Purge, clock: Clock, pictures: Pictures | None = None) -> None:
        self._sql = sql
        self.rows = rows
        self._purge = purge
        self._clock = clock
        self._pictures = pictures

    async def create(self, new: NewItem, operation: str | None, actor: Actor = API, *, origin: str = "") -> Item:
        """Create an item. The same operation returns the same item. `origin` is that of the event."""
        values = {
            "name": clean_name(new.name),
            "description": new.description,
            "price": hundredths(new.price),
            "qty": new.qty,
            "version": 1,
            "created_ms": self._clock.now_ms(),
        }
        async with self._sql.begin() as tx:
            values["media"] = await self._adopt(tx, actor, new.media)
            row, is_new = await insert_once(self._sql, tx, ITEMS, values, operation)
            if is_new:
                await add_events(tx, STREAM, [ItemCreated(row.id)], row.created_ms, origin)
            await self._add_use(tx, row.id, new.media)
        data = row_data(row)
        await self.rows.put(str(row.id), data)
        return msgspec.convert(data, Item)

    async def change(self, id: int, change: ItemChange, actor: Actor = API) -> Item:
        """Change an item, its cached row and its pages, if it is as the caller saw it."""
        columns = change.columns()
        if change.withdrawn is not UNSET:
            columns["withdrawn_ms"] = self._clock.now_ms() if change.withdrawn else None
        if not columns and change.media is UNSET:
            return await self.read(id)
        async with self._sql.begin() as tx:
            if change.expected is not UNSET:
                await _require_expected(tx, id, change)
            if change.media is not UNSET:
                columns["media"] = await self._adopt(tx, actor, change.media)
            statement = update(ITEMS).where(ITEMS.c.id == id).values(version=ITEMS.c.version + 1, **columns)
            row = (await tx.execute(statement.returning(ITEMS))).one_or_none()
            if row is None:
                raise item_not_found(id)
            await self._add_use(tx, id, change.media or [])
            await add_events(tx, STREAM, [ItemUpdated(id)], self._clock.now_ms())
        return await self.publish(row)

    async def publish(self, row: Any) -> Item:
        """Update the caches of an item that was changed in SQL, and return it."""
        data = row_data(row)
        is_sold = row.withdrawn_ms is None
        await self._update_caches(row.id, self.rows.put(str(row.id), data if is_sold else None))
        return item_from(row)

    async def _adopt(self, tx: AsyncConnection, actor: Actor, ids: Sequence[str]) -> str | None:
        """Take pictures for an item, and return them as they are stored with it."""
        if not ids:
            return None
        if self._pictures is None:
            raise Invalid("Pictures are not enabled here.", field="media")
        return encode_pictures(await self._pictures.adopt(tx, actor, ids))

    async def _add_use(self, tx: AsyncConnection, id: int, pictures: Sequence[str]) -> None:
        if self._pictures is not None:
            await self._pictures.add_use(tx, pictures, PictureUse(ITEM, str(id)))

    async def refresh(self, rows: Sequence[RowData]) -> None:
        """Update the caches after items were changed in SQL."""
        await asyncio.gather(*(self._update_caches(data["id"], self.rows.put(str(data["id"]), data)) for data in rows))

    async def reload_many(self, ids: Iterable[int]) -> None:
        """Reload items that a process changed in SQL: it may have died before it updated the caches."""
        await asyncio.gather(*(self._update_caches(id, self.rows.reload(str(id))) for id in ids))

    async def _update_caches(self, id: int, row: Awaitable[object]) -> None:
        """Update the row, then purge: a page that is computed after the purge must not show the old row."""
        await row
        await self._purge(page_tag(id))

    async def read(self, id: int) -> Item:
        """Return an item without counting a view. One round trip, or none if this process has cached it."""
        item = await self._from_row(str(id), await self.rows.get(str(id)))
        if item is None:
            raise item_not_found(id)
        return item

    async def read_many(self, ids: Sequence[str]) -> list[Item | None]:
        """Return items by their ids, None for an unknown one. One round trip for the cached ones."""
        known = [id for id in ids if is_item_id(id)]
        rows = dict(zip(known, await self.rows.get_many(known), strict=True))
        items = {id: _decode(id, row) for id, row in rows.items() if row is not None}
        incomplete = [id for id, item in items.items() if item is None]
        if incomplete:
            loaded = await asyncio.gather(*(self._complete(id, rows[id]) for id in incomplete))
            items.update(zip(incomplete, loaded, strict=True))
        return [items.get(id) for id in ids]

    async def names(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the names of items, also of withdrawn ones. One short read."""
        return {row.id: row.name for row in await self._sql.fetch_all(_NAMES, ids=list(ids))} if ids else {}

    async def _from_row(self, id: str, row: CachedRow | None) -> Item | None:
        if row is None:
            return None
        return _decode(id, row) or await self._complete(id, row)

    async def _complete(self, id: str, row: CachedRow | None) -> Item | None:
        """Return the item of an incomplete row, which another service wrote: as the database has it, if it does.

        An item that only the other service has is shown as far as its row says; it has no price and cannot be ordered.
        """
        loaded = await self.rows.load(id)
        if loaded is not None:
            return _decode(id, loaded)
        return None if row is None else _foreign_item(id, row)

    async def page(self, page: Page) -> ItemsPage:
        """Return a page of items, newest first."""
        paged = await page_by_position(_LIST, page, ids_in_table(self._sql, _LIST, _NEWEST_IDS), self.read_many)
        return ItemsPage(paged.items, paged.pagination)


async def _require_expected(tx: AsyncConnection, id: int, change: ItemChange) -> None:
    """Lock an item, and raise `ItemChanged` if it is not as the caller saw it."""
    row = (await tx.execute(select(ITEMS).where(ITEMS.c.id == id).with_for_update())).one_or_none()
    if row is not None and (fields := change.conflicts(row_data(row))):
        raise ItemChanged(f"Changed since you loaded the item: {', '.join(fields)}. Load it again.", fields=fields)


def _decode(id: str, row: CachedRow) -> Item | None:
    """Return the item of a row; None if the row is not complete. Other services write `inv:<id>` too."""
    try:
        item = msgspec.json.decode(row.json, type=Item)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    if item.id != int(id) or not is_price(item.price):
        return None
    return msgspec.structs.replace(item, stale=row.stale)


class _ForeignRow(msgspec.Struct):
    """The documented fields of a row."""

    name: str
    description: str = ""
    qty: int | float | str | None = None


def _foreign_item(id: str, row: CachedRow) -> Item | None:
    with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
        found = msgspec.json.decode(row.json, type=_ForeignRow)
        return Item(int(id), found.name, found.description, "", max(0, parse_int(found.qty)), 0, stale=True)
    return None


def item_from(row: Any) -> Item:
    """Return the item of a row in SQL."""
    item = msgspec.convert(row_data(row), Item)
    return item if row.withdrawn_ms is None else msgspec.structs.replace(item, withdrawn=True)


def page_tag(id: int | str) -> str:
    """Return the tag of the pages that show an item."""
    return f"item-{id}"


def item_not_found(id: int) -> NotFound:
    return NotFound("There is no item with this id.", id=id)
