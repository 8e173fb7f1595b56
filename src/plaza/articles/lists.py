"""Articles by the page: all of them, or those of a group, in any order.

`time` keeps every article in its place, so its cursor is a position. The other orders move with every vote: their first
page fixes a snapshot.

A group's list is cut from the whole order when someone reads it, and kept for a minute (`cuts.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from plaza.articles.group_rankings import Cuts
from plaza.articles.keys import CUTS, GROUPS, RANKINGS
from plaza.articles.model import Article, ArticlesPage, ArticlesQuery, Group, GroupsPage
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.paging import FetchIds, Page, Position, Snapshots, ids_in_sorted_set, page_by_position

_PREFIX = len("article:")

# Sees to it that a list is there; says whether there is any use in looking again.
Ensure = Callable[[], Awaitable[bool]]


class Lists:
    """Pages of articles, and of groups."""

    def __init__(self, articles: Articles, cuts: Cuts, snapshots: Snapshots) -> None:
        self._articles = articles
        self._functions = articles.functions
        self._valkey = articles.valkey
        self._cuts = cuts
        self._snapshots = snapshots

    async def all(self, viewer: Actor | None, query: ArticlesQuery) -> ArticlesPage:
        """A page of all articles. Two round trips, and one more to keep a snapshot that nobody has kept yet."""
        return await self._page(RANKINGS[query.order](), viewer, query, _nothing)

    async def of_group(self, viewer: Actor | None, group: str, query: ArticlesQuery) -> ArticlesPage:
        """A page of a group's articles. As `all`, unless the list has to be built."""
        return await self._page(CUTS[query.order](group), viewer, query, lambda: self._cuts.ensure(query.order, group))

    async def groups(self, page: Page) -> GroupsPage:
        """Groups that have articles, the largest first. Two round trips, and one more to keep a new snapshot."""
        paged = await self._snapshots.page("groups", page, self._first(GROUPS(), _nothing), self._load_groups)
        return GroupsPage(paged.items, paged.pagination)

    async def _page(self, key: str, viewer: Actor | None, query: ArticlesQuery, ensure: Ensure) -> ArticlesPage:
        async def load(members: Sequence[str]) -> list[Article | None]:
            return await self._articles.read_many(viewer, [int(member[_PREFIX:]) for member in members])

        if query.order == "time":
            paged = await page_by_position(key, query, self._behind(key, ensure), load)
        else:
            paged = await self._snapshots.page(key, query, self._first(key, ensure), load)
        return ArticlesPage(paged.items, paged.pagination)

    def _first(self, key: str, ensure: Ensure) -> Callable[[int], Awaitable[list[str]]]:
        """The first of a list as it stands now. One that is not there is ensured, and looked at again."""

        async def ids(count: int) -> list[str]:
            found: list[str] = await self._valkey.call("ZRANGE", key, 0, count - 1, "REV")
            if not found and await ensure():
                found = await self._valkey.call("ZRANGE", key, 0, count - 1, "REV")
            return found

        return ids

    def _behind(self, key: str, ensure: Ensure) -> FetchIds[Position]:
        """What comes behind a place in a list. The same."""
        look = ids_in_sorted_set(self._functions, key)

        async def after(start: Position | None, count: int) -> Sequence[tuple[str, Position]]:
            found = await look(start, count)
            if not found and await ensure():
                found = await look(start, count)
            return found

        return after

    async def _load_groups(self, names: Sequence[str]) -> list[Group | None]:
        sizes = await self._valkey.call("ZMSCORE", GROUPS(), *names)
        return [Group(name, name, int(size)) if size else None for name, size in zip(names, sizes, strict=True)]


async def _nothing() -> bool:
    return False
