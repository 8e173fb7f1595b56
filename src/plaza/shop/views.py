"""Who looked at what: recently viewed, and what is popular."""

from __future__ import annotations

import asyncio

from plaza.caching.item_views import ItemViews
from plaza.core.paging import Page, Position, Snapshots, list_checksum, page_by_position
from plaza.sessions.service import Sessions, Visit
from plaza.shop.items import Items
from plaza.shop.model import Item, ItemsPage


class Views:
    """Counts views."""

    def __init__(self, sessions: Sessions, items: Items, item_views: ItemViews, snapshots: Snapshots) -> None:
        self._sessions = sessions
        self._clustered = sessions.functions.valkey.clustered
        self._items = items
        self._item_views = item_views
        self._snapshots = snapshots

    async def view(self, cookie: str | None, id: int) -> tuple[Visit, Item]:
        """Return an item and count a view. One round trip if this process has cached the row, else two."""
        item = await self._items.read(id)
        if not self._clustered:
            visit, _ = await self._sessions.visit(cookie, "shop_view", id)
            return visit, item
        (visit, _), _ = await asyncio.gather(self._sessions.visit(cookie, "shop_view", id), self._item_views.count(id))
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
        paged = await self._snapshots.page("shop popular", page, self._item_views.most_viewed, self._items.read_many)
        return ItemsPage(paged.items, paged.pagination)
