"""The home feed: the posts of everyone one follows, newest first, complete however long one was away.

`tmp:home:<username>` holds the newest of them while someone reads, and is brought up to date by every read: it takes in
what was posted since the last one, so nothing depends on the push in the background having arrived. It is built by a
threshold merge: a few of the newest of each person, in batches, and more only of those whose oldest fetched post is
still newer than the 800th found. What lies deeper than the feed is merged in the same way, page by page, and not kept.

Who is no longer followed, blocked or muted, and what is deleted or banned, is left out when a page is read.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.paging import Page, PageResult, Position, list_checksum, page_by_position
from plaza.social.keys import (
    EXPLORE_FEED,
    HOME_SECONDS,
    POST,
    TMP_HOME,
    TMP_HOME_STATE,
    USER_FOLLOWING,
    USER_FOLLOWING_RECENT,
    USER_POSTS,
)
from plaza.social.model import FeedItem
from plaza.social.post_reader import Command, PostReader, ReadView

# At least so many are in a feed that was built.
DEPTH = 800

# How many people one batch asks about.
BATCH = 500

# As in `feeds.lua`.
OVERLAP_MS = 2_000
MERGED = 300
NAMES = 6_000


# Where a page begins (score and id, '' for the top), and how many it needs.
Place = tuple[str, str, int]


class Found(NamedTuple):
    """A post, where it stands, and whose it is. Ordered as in a sorted set."""

    score: float
    id: str
    author: str


class HomeFeed:
    def __init__(self, functions: Functions, reader: PostReader, clock: Clock) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.reader = reader
        self.clock = clock

    async def page(self, actor: Actor, page: Page, *, users: bool = True) -> PageResult[FeedItem]:
        """A page. Two round trips on one server when warm; one for each 500 followed and two more when built."""
        me, view = actor.name, ReadView(actor, users, followed=True)
        load, seen = partial(self.reader.items, view), partial(self.reader.seen, view)
        return await page_by_position(TMP_HOME(me), page, partial(self._after, me), load, seen)

    async def _after(self, me: str, start: Position | None, count: int) -> list[tuple[str, Position]]:
        place = ("", "") if start is None else (repr(start.score), start.id)
        keys = [TMP_HOME(me), TMP_HOME_STATE(me), USER_FOLLOWING(me), USER_FOLLOWING_RECENT(me)]
        if not self.valkey.clustered:
            keys.append(EXPLORE_FEED())
        now = self.clock.now_ms()
        kind, *said = await self.functions.run("social_home_open", keys, now, HOME_SECONDS, *place, count)
        if kind == "merge":
            kind, *said = await self._merge(me, now, float(said[0]), said[1], (*place, count))
        if kind == "gone":  # it ran out between two steps
            return await self._after(me, start, count)
        if kind == "build":
            said = await self._build(me, now, said[0], await self._all(me, said[1]), (*place, count))
        floor, rows = said
        name = list_checksum(TMP_HOME(me))
        found = [(id, Position(name, float(at), id)) for id, at in zip(rows[::2], rows[1::2], strict=True)]
        if not floor:
            return found
        # Below its floor a feed may hold a stray old post, but not all of them.
        found = [row for row in found if row[1].score >= float(floor)]
        if len(found) < count:
            behind = found[-1][1] if found else start
            found += await self._deeper(me, behind, count - len(found))
        return found

    async def _deeper(self, me: str, behind: Position | None, count: int) -> list[tuple[str, Position]]:
        found, _ = await self.newest(await self._all(me, []), count, behind)
        return [(post.id, Position(list_checksum(TMP_HOME(me)), post.score, post.id)) for post in found]

    async def _build(self, me: str, now: int, follows: str, names: list[str], place: Place) -> list[Any]:
        found, complete = await self.newest(names, DEPTH)
        floor = "" if complete else _number(found[-1].score)
        rows = [part for post in found for part in (_number(post.score), post.id)]
        keys = [TMP_HOME(me), TMP_HOME_STATE(me)]
        said: list[Any] = await self.functions.run(
            "social_home_put", keys, HOME_SECONDS, follows, now, floor, *place, *rows
        )
        return said[1:]

    async def _merge(self, me: str, now: int, upto: float, names: list[str], place: Place) -> list[Any]:
        """Take in what came since the last merge: from everyone's posts if they are few, else from those followed."""
        since = _number(upto - OVERLAP_MS)
        found = await self._from_explore(me, since) if self.valkey.clustered else None
        if found is None:
            found = await self._since(await self._all(me, names), since)
        rows = [part for post in found for part in (_number(post.score), post.id)]
        keys = [TMP_HOME(me), TMP_HOME_STATE(me)]
        answer: list[Any] = await self.functions.run("social_home_merge", keys, HOME_SECONDS, now, *place, *rows)
        return answer

    async def _from_explore(self, me: str, since: str) -> list[Found] | None:
        rows = await self.valkey.call(
            "ZRANGE", EXPLORE_FEED(), since, "+inf", "BYSCORE", "LIMIT", 0, MERGED + 1, "WITHSCORES"
        )
        if len(rows) > MERGED:
            return None
        if not rows:
            return []
        authors = await self.valkey.batch([("HGET", POST(id), "user_id") for id, _ in rows])
        follows = await self.valkey.call("SMISMEMBER", USER_FOLLOWING(me), *(author or "" for author in authors))
        return [Found(score, id, author) for (id, score), author, on in zip(rows, authors, follows, strict=True) if on]

    async def _since(self, names: list[str], since: str) -> list[Found]:
        found: list[Found] = []
        for batch in _batches(names):
            commands: list[Command] = [
                ("ZRANGE", USER_POSTS(name), "+inf", since, "BYSCORE", "REV", "LIMIT", 0, DEPTH, "WITHSCORES")
                for name in batch
            ]
            for name, rows in zip(batch, await self.valkey.batch(commands), strict=True):
                found += [Found(score, id, name) for id, score in rows]
        return found

    async def _all(self, me: str, names: list[str]) -> list[str]:
        """Everyone followed; the first of them may be known. One round trip for 6,000."""
        while len(names) % NAMES == 0:
            more = await self.valkey.call(
                "ZRANGE", USER_FOLLOWING_RECENT(me), len(names), len(names) + NAMES - 1, "REV"
            )
            if not more:
                break
            names = [*names, *more]
        return names

    async def newest(
        self, names: Sequence[str], depth: int, behind: Position | None = None
    ) -> tuple[list[Found], bool]:
        """The newest posts of some people, at least `depth` if there are so many, and whether these are all.

        One round trip for each 500 people, and one more for each 500 who have posted much more than the others.
        """
        # Three times a fair share and a few: who has posted more than that is rare, and is asked again.
        each = min(depth, 3 * depth // max(len(names), 1) + 5)
        merge = Merge(depth, behind)
        for batch in _batches(names):
            merge.take(batch, each, await self.valkey.batch(merge.commands(batch, each)))
            await asyncio.sleep(0)
        while rest := merge.unfinished():
            each = min(depth, each * 8) if each < depth else each * 2
            for batch in _batches(rest):
                merge.take(batch, each, await self.valkey.batch(merge.commands(batch, each)))
        return merge.result()


class Merge:
    """A threshold merge under way."""

    def __init__(self, depth: int, behind: Position | None) -> None:
        self.depth = depth
        self.behind = None if behind is None else (behind.score, behind.id)
        self.found: dict[str, Found] = {}
        self.open: dict[str, float] = {}  # who has more, and the score down to which theirs are known
        self.threshold = float("-inf")  # of the depth-th found so far; nothing older is needed

    def commands(self, names: Sequence[str], each: int) -> list[Command]:
        top = "+inf" if self.behind is None else _number(self.behind[0])
        bottom = "-inf" if self.threshold == float("-inf") else _number(self.threshold)
        return [
            ("ZRANGE", USER_POSTS(name), top, bottom, "BYSCORE", "REV", "LIMIT", 0, each, "WITHSCORES")
            for name in names
        ]

    def take(self, names: Sequence[str], each: int, replies: Sequence[list[tuple[str, float]]]) -> None:
        for name, rows in zip(names, replies, strict=True):
            self.open.pop(name, None)
            if len(rows) == each:
                self.open[name] = rows[-1][1]
            for id, score in rows:
                if self.behind is None or (score, id) < self.behind:
                    self.found[id] = Found(score, id, name)
        if len(self.found) >= self.depth:
            self.threshold = heapq.nlargest(self.depth, (post.score for post in self.found.values()))[-1]

    def unfinished(self) -> list[str]:
        """Who may have posted more that belongs in the result."""
        return [name for name, known in self.open.items() if known >= self.threshold]

    def result(self) -> tuple[list[Found], bool]:
        posts = sorted((p for p in self.found.values() if p.score >= self.threshold), reverse=True)
        return posts, len(posts) == len(self.found) and not self.open and self.threshold == float("-inf")


def _batches(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[first : first + BATCH] for first in range(0, len(names), BATCH)]


def _number(score: float) -> str:
    return str(int(score)) if score == int(score) else repr(score)
