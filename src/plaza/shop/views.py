"""Views of items: what a session has viewed, and which items are popular."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from plaza.caching.item_views import ItemViews
from plaza.core.paging import Page, Position, Snapshots, list_checksum, page_by_position
from plaza.core.sequences import pairs
from plaza.sessions.model import SessionClient, Visit
from plaza.sessions.session_finder import SessionCall, SessionFinder
from plaza.shop.items import Items
from plaza.shop.keys import VIEWED_ITEMS
from plaza.shop.model import Item, ItemsPage


class Views:
    """Views of items."""

    def __init__(self, sessions: SessionFinder, items: Items, item_views: ItemViews, snapshots: Snapshots) -> None:
        self._sessions = sessions
        self._functions = sessions.store.functions
        self._items = items
        self._item_views = item_views
        self._snapshots = snapshots

    async def view(self, cookie: str | SessionClient | None, id: int) -> tuple[Visit, Item]:
        """Return an item and count a view. One round trip if this process has cached the row, else two.

        A view is counted once; if the process dies at the wrong moment, not at all.
        """
        item = await self._items.read(id)
        add = self._sessions.visit(cookie, partial(self._add_viewed, id))
        if self._functions.valkey.clustered:  # the counts are on another node
            (visit, _), _ = await asyncio.gather(add, self._item_views.count(id))
            return visit, item
        visit, _ = await add
        if visit.offered:  # nothing was run in a session
            await self._item_views.count(id)
        return visit, item

    async def _add_viewed(self, id: int, call: SessionCall) -> list[Any]:
        reply: list[Any] = await self._functions.run_deferred("shop_view", call.keys, *call.args, id)
        return reply

    async def recently_viewed(self, cookie: str | SessionClient | None, page: Page) -> tuple[Visit, ItemsPage]:
        """Return the items that a session has viewed, newest first. Two round trips."""
        visit, viewed = await self._sessions.visit(cookie, self._read_viewed)
        if visit.was_guest:
            viewed = await self._viewed_before_login(visit.token)
        name = f"viewed by {visit.id}"
        positions = [(item, Position(list_checksum(name), float(at), item)) for item, at in pairs(viewed)]

        async def after(start: Position | None, count: int) -> list[tuple[str, Position]]:
            rest = positions
            if start is not None:  # equal times are in descending order of ids, as in Valkey
                rest = [p for p in positions if (p[1].score, p[0]) < (start.score, start.id)]
            return rest[:count]

        paged = await page_by_position(name, page, after, self._items.read_many)
        return visit, ItemsPage(paged.items, paged.pagination)

    async def _read_viewed(self, call: SessionCall) -> list[Any]:
        reply: list[Any] = await self._functions.run_deferred("shop_viewed", call.keys, *call.args)
        return reply

    async def _viewed_before_login(self, token: str) -> list[str]:
        """Return what a guest had viewed when a login replaced the token, newest first: item, time, …"""
        viewed = await self._functions.valkey.call("ZRANGE", VIEWED_ITEMS(token), 0, -1, "REV", "WITHSCORES")
        return [part for item, at in viewed for part in (item, repr(at))]

    async def popular(self, page: Page) -> ItemsPage:
        """Return items, the most viewed first. Two round trips, and one more if the second page stores a snapshot."""
        paged = await self._snapshots.page("shop popular", page, self._item_views.most_viewed, self._items.read_many)
        return ItemsPage(paged.items, paged.pagination)
