"""Loads the items of the shop. They are the same for every seed and are created once."""

from __future__ import annotations

from plaza.caching.keys import ITEM_VIEWS
from plaza.core.valkey import Valkey
from plaza.demo.phrases import read_texts
from plaza.shop.items import Items
from plaza.shop.model import NewItem


class ShopLoader:
    def __init__(self, items: Items, valkey: Valkey) -> None:
        self._items = items
        self._valkey = valkey

    async def load(self, batch: int, size: int) -> int:
        stock = read_texts("shop")["items"][batch * size : (batch + 1) * size]
        for place, (name, price, qty, views, description) in enumerate(stock, batch * size):
            item = await self._items.create(
                NewItem(name, description, price, qty), f"demo item {place}", origin="import"
            )
            # The item starts with this many views; later views add to them.
            await self._valkey.call("ZADD", ITEM_VIEWS(), "NX", -views, item.id)
        return len(stock)
