"""The home feed: the posts of the users that the viewer follows, newest first, complete after any absence.

`tmp:home:<username>` caches the newest of them. Every read first merges what was posted since the last one, so nothing
depends on the background fan-out. On one server Valkey builds a short feed in one step. A long one is built by a
threshold merge: it reads a few of the newest posts of each user, in batches, and more only of users whose oldest
fetched post is still newer than the 800th found. Pages beyond the cached feed are merged in the same way and not
stored.

Posts of users who are not followed now, blocked or muted, and deleted or banned posts, are left out on read.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, NamedTuple

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.paging import Page, PageResult, Position, list_checksum, page_by_position
from plaza.core.sequences import chunks, pairs
from plaza.social.keys import (
    EXPLORE_FEED,
    FEEDS_IMPORTED,
    HOME_SECONDS,
    POST,
    TMP_HOME,
    TMP_HOME_STATE,
    USER_FOLLOWING,
    USER_FOLLOWING_RECENT,
    USER_POSTS,
)
from plaza.social.model import FeedItem
from plaza.social.post_reader import PostReader
from plaza.social.read_view import Command, ReadView

# A feed is built with at least this many posts, if there are as many.
DEPTH = 800

# Users read in one batch.
BATCH = 500

# Posts of a batch that are merged in one turn of the event loop: about 0.5 ms.
ROWS_PER_TURN = 500

# A read merges from this long before its last merge: clocks differ, and on a cluster a post reaches `explore:feed` a
# moment after it was created.
MERGE_OVERLAP_MS = 2_000
# A read merges up to this many new posts from `explore:feed`; with more, reading the followed users is cheaper.
MAX_MERGED = 300
# Followed users read in one round trip.
MAX_FOLLOWED_READ = 6_000


# Where a page begins (score and id, '' for the top), and how many posts it needs.
Place = tuple[str, str, int]


class Found(NamedTuple):
    """A post with its score and author, ordered as in a sorted set."""

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
        """Return a page. Two round trips on one server if cached or short; else one for each 500 users followed."""
        me, view = actor.name, ReadView(actor, users, followed=True)
        load, seen = partial(self.reader.items, view), partial(self.reader.visible, view)
        at_offset = partial(self._at_offset, view, me)
        return await page_by_position(TMP_HOME(me), page, partial(self._after, me), load, seen, at_offset)

    async def _at_offset(self, view: ReadView, me: str, offset: int, count: int) -> list[tuple[str, Position]] | None:
        """Return the posts after so many visible ones if the cached feed has them, else None.

        Two round trips, of which the first merges new posts; one more beyond `DEPTH`.
        """
        floor_command = ("HGET", TMP_HOME_STATE(me), "floor")
        # A feed with a floor has little more than `DEPTH` posts.
        if self.valkey.clustered or (offset + count > DEPTH and await self.valkey.call(*floor_command)):
            return None
        await self._after(me, None, 1)
        found, floor = await asyncio.gather(
            self.reader.at_offset(view, TMP_HOME(me), offset, count),
            self.valkey.call(*floor_command),
        )
        if found is None or floor is None:  # None: it expired between two commands
            return None
        # Below its floor the cached feed is not complete.
        is_complete = not floor or (len(found.rows) == count and found.rows[-1][1] >= float(floor))
        return found.positions(TMP_HOME(me)) if is_complete else None

    async def _after(self, me: str, start: Position | None, count: int) -> list[tuple[str, Position]]:
        place = ("", "") if start is None else (repr(start.score), start.id)
        keys = [TMP_HOME(me), TMP_HOME_STATE(me), USER_FOLLOWING(me), USER_FOLLOWING_RECENT(me)]
        if not self.valkey.clustered:
            keys += [EXPLORE_FEED(), FEEDS_IMPORTED()]
        now = self.clock.now_ms()
        opening = self.functions.run("social_home_open", keys, now, HOME_SECONDS, *place, count, me)
        if self.valkey.clustered:
            kind, *reply = await self._open_on_cluster(opening)
        else:
            kind, *reply = await opening
        if kind == "merge":
            kind, *reply = await self._merge(me, now, float(reply[0]), reply[1], (*place, count))
        if kind == "gone":  # it expired between two commands
            return await self._after(me, start, count)
        if kind == "build":
            names = await self._following(me, reply[1])
            reply = await self._build(me, now, reply[0], names, (*place, count), reply[2])
        floor, rows = reply
        name = list_checksum(TMP_HOME(me))
        found = [(id, Position(name, float(at), id)) for id, at in pairs(rows)]
        if not floor:
            return found
        # Below its floor the cached feed is not complete.
        found = [row for row in found if row[1].score >= float(floor)]
        if len(found) < count:
            after = found[-1][1] if found else start
            found += await self._beyond_cache(me, after, count - len(found))
        return found

    async def _open_on_cluster(self, opening: Awaitable[list[Any]]) -> list[Any]:
        """Return the reply to `home_open`, which cannot read the last import: that is on another node."""
        reply, imported = await asyncio.gather(opening, self.valkey.call("GET", FEEDS_IMPORTED()))
        last_import = imported or ""
        if reply[0] == "build":
            return [*reply[:3], last_import]
        _, upto, names, follows, built_after = reply
        return ["merge", upto, names] if built_after == last_import else ["build", follows, names, last_import]

    async def _beyond_cache(self, me: str, after: Position | None, count: int) -> list[tuple[str, Position]]:
        found, _ = await self.newest(await self._following(me, []), count, after)
        return [(post.id, Position(list_checksum(TMP_HOME(me)), post.score, post.id)) for post in found]

    async def _build(
        self, me: str, now: int, follows: str, names: list[str], place: Place, last_import: str
    ) -> list[Any]:
        found, complete = await self.newest(names, DEPTH)
        floor = "" if complete else _number(found[-1].score)
        rows = [part for post in found for part in (_number(post.score), post.id)]
        keys = [TMP_HOME(me), TMP_HOME_STATE(me)]
        reply: list[Any] = await self.functions.run(
            "social_home_put", keys, HOME_SECONDS, follows, now, floor, *place, last_import, *rows
        )
        return reply[1:]

    async def _merge(self, me: str, now: int, upto: float, names: list[str], place: Place) -> list[Any]:
        """Merge what was posted since the last read: from the explore feed if that is short, else user by user."""
        since = _number(upto - MERGE_OVERLAP_MS)
        found = await self._from_explore(me, since) if self.valkey.clustered else None
        if found is None:
            found = await self._posted_since(await self._following(me, names), since)
        rows = [part for post in found for part in (_number(post.score), post.id)]
        keys = [TMP_HOME(me), TMP_HOME_STATE(me)]
        reply: list[Any] = await self.functions.run("social_home_merge", keys, HOME_SECONDS, now, *place, *rows)
        return reply

    async def _from_explore(self, me: str, since: str) -> list[Found] | None:
        rows = await self.valkey.call(
            "ZRANGE", EXPLORE_FEED(), since, "+inf", "BYSCORE", "LIMIT", 0, MAX_MERGED + 1, "WITHSCORES"
        )
        if len(rows) > MAX_MERGED:
            return None
        if not rows:
            return []
        authors = await self.valkey.batch([("HGET", POST(id), "user_id") for id, _ in rows])
        follows = await self.valkey.call("SMISMEMBER", USER_FOLLOWING(me), *(author or "" for author in authors))
        return [Found(score, id, author) for (id, score), author, on in zip(rows, authors, follows, strict=True) if on]

    async def _posted_since(self, names: list[str], since: str) -> list[Found]:
        found: list[Found] = []
        for batch in chunks(names, BATCH):
            commands: list[Command] = [
                ("ZRANGE", USER_POSTS(name), "+inf", since, "BYSCORE", "REV", "LIMIT", 0, DEPTH, "WITHSCORES")
                for name in batch
            ]
            for name, rows in zip(batch, await self.valkey.batch(commands), strict=True):
                found += [Found(score, id, name) for id, score in rows]
        return found

    async def _following(self, me: str, names: list[str]) -> list[str]:
        """Return all users followed, given the first of them or none. One round trip for each 6,000."""
        while len(names) % MAX_FOLLOWED_READ == 0:
            more = await self.valkey.call(
                "ZRANGE", USER_FOLLOWING_RECENT(me), len(names), len(names) + MAX_FOLLOWED_READ - 1, "REV"
            )
            if not more:
                break
            names = [*names, *more]
        return names

    async def newest(self, names: Sequence[str], depth: int, after: Position | None = None) -> tuple[list[Found], bool]:
        """Return the newest posts of these users, at least `depth` if there are as many, and whether these are all.

        One round trip for each 500 users, and one more for each 500 who posted much more than the others.
        """
        # Three times the average share: few users posted more, and only those are read again.
        each = min(depth, 3 * depth // max(len(names), 1) + 5)
        merge = ThresholdMerge(depth, after)
        await self._read_newest(merge, names, each)
        while rest := merge.unfinished():
            each = min(depth, each * 8) if each < depth else each * 2
            await self._read_newest(merge, rest, each)
        return merge.result()

    async def _read_newest(self, merge: ThresholdMerge, names: Sequence[str], each: int) -> None:
        """Read the newest posts of each user. Other requests run in between."""
        users = max(1, ROWS_PER_TURN // each)
        for batch in chunks(names, BATCH):
            replies = await self.valkey.batch(merge.commands(batch, each))
            for some, rows in zip(chunks(batch, users), chunks(replies, users), strict=True):
                merge.take(some, each, rows)
                await asyncio.sleep(0)
            merge.raise_threshold()


class ThresholdMerge:
    """Collects posts of many users until the newest `depth` are known."""

    def __init__(self, depth: int, after: Position | None) -> None:
        self.depth = depth
        self.after = None if after is None else (after.score, after.id)
        self.found: dict[str, Found] = {}
        self.open: dict[str, float] = {}  # users with more posts, and the score down to which theirs are read
        self.threshold = float("-inf")  # score of the depth-th post found; older ones are not needed

    def commands(self, names: Sequence[str], each: int) -> list[Command]:
        top = "+inf" if self.after is None else _number(self.after[0])
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
                if self.after is None or (score, id) < self.after:
                    self.found[id] = Found(score, id, name)

    def raise_threshold(self) -> None:
        """Leave out in the next batch what is older than the posts that are found."""
        if len(self.found) >= self.depth:
            self.threshold = heapq.nlargest(self.depth, (post.score for post in self.found.values()))[-1]

    def unfinished(self) -> list[str]:
        """Return the users who may have more posts for the result."""
        return [name for name, known in self.open.items() if known >= self.threshold]

    def result(self) -> tuple[list[Found], bool]:
        posts = sorted((p for p in self.found.values() if p.score >= self.threshold), reverse=True)
        return posts, len(posts) == len(self.found) and not self.open and self.threshold == float("-inf")


def _number(score: float) -> str:
    """Return a score as Valkey reads it. Another service may have written an infinite one."""
    return str(int(score)) if score.is_integer() else repr(score)
