"""Pages of articles: all articles or a group's, in any order; and pages of groups.

In the order `time` an article keeps its place, so the cursor is a position. In the other orders articles move with
every vote, so later pages read a snapshot.

A group's ranking is built from the ranking of all articles when it is read, and lives for a minute
(`group_rankings.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from plaza.articles.group_rankings import GroupRankings
from plaza.articles.keys import GROUP, GROUP_RANKINGS, GROUPS, RANKINGS, USER_ARTICLES, USER_VOTES
from plaza.articles.model import PERIOD_SECONDS, Article, ArticleGroup, ArticlesPage, ArticlesQuery, GroupsPage
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.paging import FetchIds, Page, Position, Snapshots, ids_in_sorted_set, list_checksum, page_by_position
from plaza.core.sequences import chunks

_MEMBER = re.compile("article:([1-9][0-9]{0,15})")

_NO_LIFETIME = -1  # the reply of PTTL

# What the top of a day or a week costs Valkey at most: a range of 5,000 and their scores, about two milliseconds.
MAX_PERIOD_ARTICLES = 5_000
SCORES_PER_READ = 1_000


class GroupOrder(NamedTuple):
    """A group's list, whose ranking may have to be built."""

    group: str
    order: str


class ArticleLists:
    """Pages of articles and of groups."""

    def __init__(self, articles: Articles, group_rankings: GroupRankings, snapshots: Snapshots) -> None:
        self._articles = articles
        self._functions = articles.functions
        self._valkey = articles.valkey
        self._group_rankings = group_rankings
        self._snapshots = snapshots

    async def list_articles(self, viewer: Actor | None, query: ArticlesQuery) -> ArticlesPage:
        """A page of all articles. Two round trips, and one more if a second page stores a snapshot.

        The top of a period takes one more.
        """
        if query.period != "all":
            return await self._top_page(RANKINGS["time"](), viewer, query, None)
        return await self._page(RANKINGS[query.order](), viewer, query, None)

    async def list_group(self, viewer: Actor | None, group: str, query: ArticlesQuery) -> ArticlesPage:
        """A page of a group's articles. Costs the same as `list_articles`, unless the ranking has to be built."""

        # The top of a period is found among the newest articles.
        order = query.order if query.period == "all" else "time"
        read = self._page if query.period == "all" else self._top_page
        page = await read(GROUP_RANKINGS[order](group), viewer, query, GroupOrder(group, order))
        unindexed = [article for article in page.articles if group not in article.groups]
        if not unindexed:
            return page
        # Another service added these to the group.
        await asyncio.gather(*(self._index_group(group, article.id) for article in unindexed))
        return ArticlesPage([_with_group(article, group) for article in page.articles], page.pagination)

    async def posted_by(self, viewer: Actor, username: str, page: Page) -> ArticlesPage:
        """A page of the articles that a user posted, latest first. Two round trips."""
        return await self._page_of_user(viewer, USER_ARTICLES(username), page)

    async def voted_by(self, actor: Actor, page: Page) -> ArticlesPage:
        """A page of the articles that the caller voted on: up, then down. Two round trips."""
        return await self._page_of_user(actor, USER_VOTES(actor.name), page)

    async def _page_of_user(self, viewer: Actor, key: str, page: Page) -> ArticlesPage:
        paged = await page_by_position(key, page, ids_in_sorted_set(self._functions, key), self._loader(viewer))
        return ArticlesPage(paged.items, paged.pagination)

    async def _index_group(self, group: str, id: int) -> None:
        await self._functions.run("articles_repair_group", [GROUP(group)], "", group, id)

    async def list_groups(self, page: Page) -> GroupsPage:
        """Groups that have articles, largest first. Round trips as `list_articles`."""
        first_names = self._first_members(GROUPS(), None)
        paged = await self._snapshots.page("groups", page, first_names, self._load_groups)
        return GroupsPage(paged.items, paged.pagination)

    async def _top_page(
        self, time_key: str, viewer: Actor | None, query: ArticlesQuery, built: GroupOrder | None
    ) -> ArticlesPage:
        """A page of the articles of a period with the most votes. Of more than 5,000, the newest are considered."""
        since = self._articles.clock.now_s() - PERIOD_SECONDS[query.period]
        newest = self._members_after(time_key, built)

        async def ids(count: int) -> list[str]:
            rows = await newest(None, MAX_PERIOD_ARTICLES)
            members = [member for member, position in rows if position.score >= since]
            batches = chunks(members, SCORES_PER_READ)
            replies = await self._valkey.batch([("ZMSCORE", RANKINGS["top"](), *batch) for batch in batches])
            votes = dict(zip(members, (score or 0.0 for reply in replies for score in reply), strict=True))
            return sorted(members, key=lambda member: -votes[member])[:count]  # of equal ones the newest first

        paged = await self._snapshots.page(f"{query.period} {time_key}", query, ids, self._loader(viewer))
        return ArticlesPage(paged.items, paged.pagination)

    def _loader(self, viewer: Actor | None) -> Callable[[Sequence[str]], Awaitable[list[Article | None]]]:
        async def load(members: Sequence[str]) -> list[Article | None]:
            ids = {member: int(match[1]) for member in members if (match := _MEMBER.fullmatch(member))}
            found = dict(zip(ids, await self._articles.read_many(viewer, list(ids.values()), listed=True), strict=True))
            return [found.get(member) for member in members]

        return load

    async def _page(
        self, key: str, viewer: Actor | None, query: ArticlesQuery, built: GroupOrder | None
    ) -> ArticlesPage:
        load = self._loader(viewer)
        if query.order == "time":
            paged = await page_by_position(key, query, self._members_after(key, built), load)
        else:
            paged = await self._snapshots.page(key, query, self._first_members(key, built), load)
        return ArticlesPage(paged.items, paged.pagination)

    def _first_members(self, key: str, built: GroupOrder | None) -> Callable[[int], Awaitable[list[str]]]:
        """A function that reads the first members of a ranking, and builds a group's if it is missing.

        A group's ranking without a lifetime is built again: the service that wrote it died before EXPIRE.
        """

        async def ids(count: int) -> list[str]:
            read = ("ZRANGE", key, 0, count - 1, "REV")
            if built is None:
                return list(await self._valkey.call(*read, shared=True))
            found, left_ms = await self._valkey.batch([read, ("PTTL", key)])
            if not found or left_ms == _NO_LIFETIME:
                found = [id for id, _ in await self._group_rankings.first_members(built.order, built.group, count)]
            return list(found)

        return ids

    def _members_after(self, key: str, built: GroupOrder | None) -> FetchIds[Position]:
        """As `_first_members`, for the members after a position."""
        read = ids_in_sorted_set(self._functions, key)
        if built is None:
            return read

        async def after(start: Position | None, count: int) -> Sequence[tuple[str, Position]]:
            found, left_ms = await asyncio.gather(read(start, count), self._valkey.call("PTTL", key))
            if found and left_ms != _NO_LIFETIME:
                return found
            if start is None:
                name = list_checksum(key)
                rows = await self._group_rankings.first_members(built.order, built.group, count)
                return [(id, Position(name, score, id)) for id, score in rows]
            await self._group_rankings.ensure(built.order, built.group)
            return await read(start, count)

        return after

    async def _load_groups(self, names: Sequence[str]) -> list[ArticleGroup | None]:
        # From the groups themselves: other services change them without updating `groups:`.
        sizes = await self._valkey.batch([("SCARD", GROUP(name)) for name in names])
        return [ArticleGroup(name, name, size) if size else None for name, size in zip(names, sizes, strict=True)]


def _with_group(article: Article, group: str) -> Article:
    return msgspec.structs.replace(article, groups=sorted({*article.groups, group}))
