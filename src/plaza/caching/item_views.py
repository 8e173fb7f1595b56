"""Counts how often items are viewed, in `viewed:`. The page cache stores the pages of the most viewed items only."""

from __future__ import annotations

from typing import Final

from plaza.caching.keys import ITEM_VIEWS, POPULAR, VIEWS_HALVED
from plaza.core.clock import Clock
from plaza.core.functions import Functions

HALVE_SECONDS: Final = 300
MAX_ITEMS: Final = 20_000
# Removing this many items takes Valkey about a millisecond.
REMOVE_BATCH: Final = 2_000


class ItemViews:
    """The view counts of items."""

    def __init__(self, functions: Functions, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock

    async def count(self, item: str | int) -> None:
        """Count one view. One round trip."""
        await self._valkey.call("ZINCRBY", ITEM_VIEWS(), -1, item)

    async def most_viewed(self, limit: int) -> list[str]:
        """Return the ids of the most viewed items, the most viewed first. One round trip."""
        ids: list[str] = await self._valkey.call("ZRANGE", ITEM_VIEWS(), 0, limit - 1)
        return ids

    async def halve(self) -> int:
        """Halve the counts and trim the list, once per five minutes. Return the number of extra batches."""
        interval = int(self._clock.now_s()) // HALVE_SECONDS
        keys, batches = [ITEM_VIEWS(), VIEWS_HALVED(POPULAR)], 0
        while await self._functions.run("caching_halve_views", keys, interval, MAX_ITEMS, REMOVE_BATCH):
            batches += 1
        return batches
