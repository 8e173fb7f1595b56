"""Items for operators: all of them, also withdrawn ones, as SQL has them; and changes of stock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select, update

from plaza.core.clock import Clock
from plaza.core.paging import FetchIds, Position, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.sql_idempotency import insert_once
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.text_folding import fold
from plaza.shop.events import STREAM, ItemUpdated
from plaza.shop.items import Items, item_from, item_not_found
from plaza.shop.model import MAX_STOCK, AllItemsQuery, Item, ItemsPage, OutOfStock, StockHistoryEntry
from plaza.shop.tables import ITEMS, STOCK_CHANGES

HISTORY_SHOWN: Final = 10
# Names that are compared at a time with a text: so many are folded in less than a millisecond.
BATCH: Final = 500

# The name of the list in its cursors.
_LIST: Final = "all shop items"
_NEWEST_IDS = newest_ids(ITEMS.c.id)
_BY_IDS = select(ITEMS).where(ITEMS.c.id.in_(bindparam("ids", expanding=True)))
_NAMES = select(ITEMS.c.id, ITEMS.c.name).where(ITEMS.c.id.in_(bindparam("ids", expanding=True)))
_STOCK_CHANGES = (
    select(STOCK_CHANGES)
    .where(STOCK_CHANGES.c.item_id == bindparam("item"))
    .order_by(STOCK_CHANGES.c.id.desc())
    .limit(HISTORY_SHOWN)
)


class ItemDesk:
    """What operators see of items beyond the shop, and how they change the stock."""

    def __init__(self, sql: Sql, items: Items, clock: Clock) -> None:
        self._sql = sql
        self._items = items
        self._clock = clock

    async def page(self, query: AllItemsQuery) -> ItemsPage:
        """Return a page of all items, newest first, or of those with a text in their name.

        Two short reads; with a text two per 500 items, until the page is full.
        """
        name = f"{_LIST} {query.name}"
        ids = ids_in_table(self._sql, name, _NEWEST_IDS)
        after = self._with_name(query.name, ids) if query.name else ids
        paged = await page_by_position(name, query, after, self._read_many)
        return ItemsPage(paged.items, paged.pagination)

    def _with_name(self, text: str, ids: FetchIds[Position]) -> FetchIds[Position]:
        """Read only the ids of items with a text in their name. No database folds all scripts, so this is done here."""
        wanted = fold(text)

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            found: list[tuple[str, Position]] = []
            while len(found) < count and (batch := await ids(start, BATCH)):
                rows = await self._sql.fetch_all(_NAMES, ids=[int(id) for id, _ in batch])
                names = {str(row.id): fold(row.name) for row in rows}
                found += [row for row in batch if wanted in names.get(row[0], "")]
                start = batch[-1][1]
            return found[:count]

        return after

    async def read(self, id: int) -> Item:
        """Return an item, also a withdrawn one. One short read."""
        (item,) = await self._read_many([str(id)])
        if item is None:
            raise item_not_found(id)
        return item

    async def _read_many(self, ids: Sequence[str]) -> list[Item | None]:
        rows = {str(row.id): row for row in await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])}
        return [item_from(rows[id]) if id in rows else None for id in ids]

    async def stock_history(self, id: int) -> list[StockHistoryEntry]:
        """Return the last changes of an item's stock by operators, latest first."""
        rows = await self._sql.fetch_all(_STOCK_CHANGES, item=id)
        return [StockHistoryEntry(row.delta, row.created_ms / 1000) for row in rows]

    async def change_stock(self, id: int, delta: int, operation: str | None = None) -> Item:
        """Add pieces to the stock, or remove them; sales at the same time count too. A change by 0 is none.

        The same operation counts once. One transaction, and a round trip for the caches.
        """
        now = self._clock.now_ms()
        values = {"item_id": id, "delta": delta, "created_ms": now}
        async with self._sql.begin() as tx:
            # First: the row's lock orders concurrent changes, and a missing item must not be referred to.
            qty = (await tx.execute(select(ITEMS.c.qty).where(ITEMS.c.id == id).with_for_update())).scalar()
            if qty is None:
                raise item_not_found(id)
            is_new = delta != 0 and (await insert_once(self._sql, tx, STOCK_CHANGES, values, operation))[1]
            if is_new and not 0 <= qty + delta <= MAX_STOCK:
                raise OutOfStock("The stock would be below 0 or above 1,000,000,000. Change it by less.", left=qty)
            if is_new:
                changed = update(ITEMS).where(ITEMS.c.id == id)
                await tx.execute(changed.values(qty=ITEMS.c.qty + delta, version=ITEMS.c.version + 1))
                await add_events(tx, STREAM, [ItemUpdated(id)], now)
            row = (await tx.execute(select(ITEMS).where(ITEMS.c.id == id))).one()
        return await self._items.publish(row)
