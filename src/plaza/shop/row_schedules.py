"""The row cache for operators: scheduled rows and how late the worker is."""

from __future__ import annotations

from collections.abc import Sequence

from plaza.caching.keys import ROW_DELAYS, ROW_SCHEDULE
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.paging import Page, ids_in_sorted_set, page_by_position
from plaza.shop.items import Items
from plaza.shop.model import CacheState, RowSchedule, is_item_id


class RowSchedules:
    """Schedules rows and reports the state of the cache."""

    def __init__(self, functions: Functions, items: Items, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._items = items
        self._clock = clock

    async def schedule(self, id: int, delay: float) -> RowSchedule:
        """Copy an item's row every `delay` seconds; 0 or less removes it from the cache."""
        await self._items.read(id)
        await self._items.rows.schedule(str(id), delay)
        (row,) = await self._read_schedules([str(id)])
        return row or RowSchedule(id, None, None)

    async def remove(self, id: int) -> None:
        """Remove an item's row from the cache."""
        await self._items.rows.schedule(str(id), 0)

    async def state(self, page: Page) -> CacheState:
        """Return a page of the scheduled rows, those with the shortest delay first. Three round trips."""
        key = ROW_DELAYS()
        paged = await page_by_position(
            key, page, ids_in_sorted_set(self._functions, key, newest_first=False), self._read_schedules
        )
        count, first = await self._valkey.batch(
            [("ZCARD", ROW_SCHEDULE()), ("ZRANGE", ROW_SCHEDULE(), 0, 0, "WITHSCORES")]
        )
        late = max(0.0, self._clock.now_s() - float(first[0][1])) if first else 0.0
        return CacheState(paged.items, paged.pagination, count, round(late, 3))

    async def _read_schedules(self, ids: Sequence[str]) -> list[RowSchedule | None]:
        delays, due = await self._valkey.batch([("ZMSCORE", ROW_DELAYS(), *ids), ("ZMSCORE", ROW_SCHEDULE(), *ids)])
        return [
            None
            if delay is None or not is_item_id(id)
            else RowSchedule(int(id), float(delay), None if at is None else float(at))
            for id, delay, at in zip(ids, delays, due, strict=True)
        ]
