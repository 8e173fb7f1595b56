"""The shop's part of the search: items."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

from plaza.core.auth import Actor
from plaza.core.root_path import with_root
from plaza.core.search_source import SearchDocument, SearchHit, count_in_table, keys_in_table
from plaza.core.sql import Sql
from plaza.shop.items import Items, row_loader
from plaza.shop.model import Item
from plaza.shop.tables import ITEMS


class ItemSearch:
    """Items, by name and description."""

    kind: Final = "items"

    def __init__(self, sql: Sql, items: Items) -> None:
        self._sql = sql
        self._items = items
        self._load_rows = row_loader(sql)

    async def documents(self, keys: Sequence[str]) -> dict[str, SearchDocument]:
        """Return items. One statement: an event can arrive before the row cache has the change."""
        rows = await self._load_rows(keys)
        return {key: SearchDocument(texts=[str(row["name"]), str(row["description"])]) for key, row in rows.items()}

    def all_keys(self, after: str) -> AsyncIterator[Sequence[str]]:
        """Return the ids of all items, oldest first."""
        return keys_in_table(self._sql, ITEMS.c.id, after)

    async def count(self, after: str) -> int:
        return await count_in_table(self._sql, ITEMS.c.id, after)

    async def load(self, viewer: Actor | None, keys: Sequence[str]) -> list[SearchHit | None]:
        """Return items. One round trip for the cached ones."""
        return [None if item is None else _hit(item) for item in await self._items.read_many(keys)]

    async def preferred(self, viewer: Actor, keys: Sequence[str]) -> set[str]:
        return set()

    def changed_keys(self, event_type: str, subject: str, data: Mapping[str, Any]) -> Iterable[str]:
        return (str(data["item"]),) if event_type.startswith("item.") and "item" in data else ()


def _hit(item: Item) -> SearchHit:
    return SearchHit(
        id=str(item.id),
        title=item.name,
        text=item.description,
        url=with_root(f"/app/shop/items/{item.id}"),
        figures={"price": item.price, "stock": item.qty},
    )
