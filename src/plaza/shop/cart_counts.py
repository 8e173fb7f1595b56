"""How many items the carts of sessions have: cached in the process until Valkey reports that the cart changed."""

from __future__ import annotations

from typing import Final

from plaza.core.number_parsing import parse_int
from plaza.core.tracking_cache import TrackingCache
from plaza.core.valkey import Valkey
from plaza.shop.keys import CART

# About 200 bytes each.
MAX_CACHED: Final = 20_000


class CartCounts:
    """The numbers of items in carts, for the badge on every page."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._counts: TrackingCache[int] = TrackingCache(valkey, MAX_CACHED)

    async def get(self, token: str) -> int:
        """Return how many items a session's cart has. No round trip if it is cached, else one."""
        key = CART(token)
        cached = self._counts.get(key)
        if cached is not None:
            return cached

        def store(quantities: list[str]) -> int:
            # Other services may write quantities that are no numbers.
            count = sum(max(0, parse_int(quantity)) for quantity in quantities)
            self._counts.put(key, count)
            return count

        count: int = await self._valkey.tracked("HVALS", key, store=store)
        return count
