"""Pages of articles: all articles or a group's, in any order; and pages of groups.

In the order `time` an article keeps its place, so the cursor is a position. In the other orders articles move with
every vote, so later pages read a snapshot.

A group's ranking is built from the ranking of all articles when it is read, and lives for a minute
(`group_rankings.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from plaza.articles.group_rankings import GroupRankings
from plaza.articles.keys import GROUP_RANKINGS, GROUPS, RANKINGS
from plaza.articles.model import Article, ArticleGroup, ArticlesPage, ArticlesQuery, GroupsPage
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.paging import FetchIds, Page, Position, Snapshots, ids_in_sorted_set, page_by_position

_PREFIX = len("article:")

# Makes sure that a ranking exists; returns whether reading it again can give more.
Ensure = Callable[[], Awaitable[bool]]


class ArticleLists:
    """Pages of articles and of groups."""

    def __init__(self, articles: Articles, group_rankings: GroupRankings, snapshots: Snapshots) -> None:
        self._articles = articles
        self._functions = articles.functions
        self._valkey = articles.valkey
        self._group_rankings = group_rankings
        self._snapshots = snapshots

    async def list_articles(self, viewer: Actor | None, query: ArticlesQuery) -> ArticlesPage:
        """A page of all articles. Two round trips, and one more to store a new snapshot."""
        return await self._page(RANKINGS[query.order](), viewer, query, _nothing_to_build)

    async def list_group(self, viewer: Actor | None, group: str, query: ArticlesQuery) -> ArticlesPage:
        """A page of a group's articles. Costs the same as `list_articles`, unless the ranking has to be built."""

        async def ensure() -> bool:
            return await self._group_rankings.ensure(query.order, group)

        return await self._page(GROUP_RANKINGS[query.order](group), viewer, query, ensure)

    async def list_groups(self, page: Page) -> GroupsPage:
        """Groups that have articles, largest first. Two round trips, and one more to store a new snapshot."""
        first_names = self._first_members(GROUPS(), _nothing_to_build)
        paged = await self._snapshots.page("groups", page, first_names, self._load_groups)
        return GroupsPage(paged.items, paged.pagination)

    async def _page(self, key: str, viewer: Actor | None, query: ArticlesQuery, ensure: Ensure) -> ArticlesPage:
        async def load(members: Sequence[str]) -> list[Article | None]:
            return await self._articles.read_many(viewer, [int(member[_PREFIX:]) for member in members])

        if query.order == "time":
            paged = await page_by_position(key, query, self._members_after(key, ensure), load)
        else:
            paged = await self._snapshots.page(key, query, self._first_members(key, ensure), load)
        return ArticlesPage(paged.items, paged.pagination)

    def _first_members(self, key: str, ensure: Ensure) -> Callable[[int], Awaitable[list[str]]]:
        """A function that reads the first members of a ranking, and builds the ranking if it is missing."""

        async def ids(count: int) -> list[str]:
            found: list[str] = await self._valkey.call("ZRANGE", key, 0, count - 1, "REV")
            if not found and await ensure():
                found = await self._valkey.call("ZRANGE", key, 0, count - 1, "REV")
            return found

        return ids

    def _members_after(self, key: str, ensure: Ensure) -> FetchIds[Position]:
        """A function that reads the members after a position, and builds the ranking if it is missing."""
        read = ids_in_sorted_set(self._functions, key)

        async def after(start: Position | None, count: int) -> Sequence[tuple[str, Position]]:
            found = await read(start, count)
            if not found and await ensure():
                found = await read(start, count)
            return found

        return after

    async def _load_groups(self, names: Sequence[str]) -> list[ArticleGroup | None]:
        sizes = await self._valkey.call("ZMSCORE", GROUPS(), *names)
        return [ArticleGroup(name, name, int(size)) if size else None for name, size in zip(names, sizes, strict=True)]


async def _nothing_to_build() -> bool:
    return False
