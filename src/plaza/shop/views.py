"""Who looked at what: recently viewed, and what is popular."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from plaza.core.clock import Clock
from plaza.core.paging import Page, Position, Snapshots, list_checksum, page_by_position
from plaza.shop.items import Items
from plaza.shop.keys import POPULAR, SHOP_HALVED, SHOP_POPULAR, of_row
from plaza.shop.model import Item, ItemsPage
from plaza.shop.sessions import Sessions, Visit

HALVE_SECONDS: Final = 300
MOST_POPULAR: Final = 20_000
# One step of cutting takes Valkey about a millisecond.
CUT_STEP: Final = 2_000


class Views:
    """Counts views."""

    def __init__(self, sessions: Sessions, items: Items, snapshots: Snapshots, clock: Clock) -> None:
        self._sessions = sessions
        self._functions = sessions.functions
        self._valkey = self._functions.valkey
        self._items = items
        self._snapshots = snapshots
        self._clock = clock

    async def view(self, cookie: str | None, id: int) -> tuple[Visit, Item]:
        """Look at an item, which counts. One round trip if its row is cached, with the session and the view in it.

        On a cluster the row, the session and `viewed:` live on different nodes: three at once after the row's one.
        A view is counted once or, if a process dies in the wrong moment, not at all.
        """
        if self._valkey.clustered:
            item = await self._items.read(id)
            (visit, _), _ = await asyncio.gather(
                self._sessions.visit(cookie, "shop_view", id, "1"),
                self._valkey.call("ZINCRBY", SHOP_POPULAR(), -1, id),
            )
            return visit, item
        visit, found = await self._sessions.visit(cookie, "shop_view", id, "0", keys=of_row(id))
        if not found:  # a token that was replaced a moment ago, by a session that has ended since
            return visit, await self._items.read(id)
        row = await self._items.rows.given(str(id), found)
        item = await self._items.item_of(id, row)
        if found[2] not in ("", "late"):  # the row was not there to be viewed; now it is
            await self._sessions.visit(visit.token, "shop_view", id, "1", keys=of_row(id))
        return visit, item

    async def recently(self, cookie: str | None, page: Page) -> tuple[Visit, ItemsPage]:
        """What a session has looked at, the newest first. Two round trips."""
        visit, flat = await self._sessions.visit(cookie, "shop_viewed")
        if visit.was_guest:
            flat = await self._sessions.viewed_before(visit.token)
        name = f"viewed by {visit.id}"
        places = [
            (item, Position(list_checksum(name), float(at), item))
            for item, at in zip(flat[::2], flat[1::2], strict=True)
        ]

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            rest = places
            if start is not None:  # equal times stand in descending order of ids, as Valkey has them
                rest = [place for place in places if (place[1].score, place[0]) < (start.score, start.id)]
            return rest[:count]

        paged = await page_by_position(name, page, after, self._items.read_many)
        return visit, ItemsPage(paged.items, paged.pagination)

    async def popular(self, page: Page) -> ItemsPage:
        """Items, the most viewed first. Two round trips, and one more to keep a new snapshot."""

        async def ids(count: int) -> Sequence[str]:
            found: list[str] = await self._valkey.call("ZRANGE", SHOP_POPULAR(), 0, count - 1)
            return found

        paged = await self._snapshots.page("shop popular", page, ids, self._items.read_many)
        return ItemsPage(paged.items, paged.pagination)

    async def halve(self) -> int:
        """Halve the counts and cut the list: once in five minutes, however often and by whomever it is called."""
        which = int(self._clock.now_s()) // HALVE_SECONDS
        keys, steps = [SHOP_POPULAR(), SHOP_HALVED(POPULAR)], 0
        while await self._functions.run("shop_halve", keys, which, MOST_POPULAR, CUT_STEP):
            steps += 1
        return steps
