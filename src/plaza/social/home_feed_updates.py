"""Keeps existing home feeds current in the background: removes deleted and banned posts, then adds new ones.

A Plaza reader needs neither: every read merges new posts and leaves out deleted ones. But other services read
`tmp:home:<username>` too. Only feeds that exist are written: an author with a million followers costs one EXISTS for
each, 500 in a round trip, on one server inside Valkey.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.sequences import chunks
from plaza.core.valkey import Arg
from plaza.social.keys import FEEDS_DROP, FEEDS_PUSH, POST, TMP_HOME, TMP_HOME_STATE, USER_FOLLOWERS_RECENT

# Followers asked in one round trip whether they have a feed.
FOLLOWERS_PER_PAGE = 500
# Posts read from a queue at once; those of one author go to each feed together.
POSTS_PER_BATCH = 500
# Feeds written at once.
MAX_CONCURRENT = 50


class HomeFeedUpdates:
    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.valkey = functions.valkey

    async def add_new_posts(self) -> int:
        """Add queued posts to the feeds of their authors' followers, newest first; return how many.

        Deleted posts that were queued meanwhile go first, so that a long queue does not keep them in feeds.
        """
        done = 0
        while ids := await self.valkey.call("ZRANGE", FEEDS_PUSH(), 0, POSTS_PER_BATCH - 1, "REV"):
            rows = await self.valkey.batch([("HMGET", POST(id), "user_id", "created_at", "banned") for id in ids])
            by_author: dict[str, list[Arg]] = {}
            for id, (author, created, banned) in zip(ids, rows, strict=True):
                if author is not None and banned is None:
                    by_author.setdefault(author, []).extend((parse_int(created), id))
            for author, scored_ids in by_author.items():
                await self._add(author, scored_ids)
            await self.valkey.call("ZREM", FEEDS_PUSH(), *ids)
            done += len(ids) + await self.remove_deleted_posts()
        return done

    async def _add(self, author: str, scored_ids: Sequence[Arg]) -> None:
        async for followers in self._followers_with_feed(author):
            for names in chunks(followers, MAX_CONCURRENT):
                feeds = [(TMP_HOME(name), TMP_HOME_STATE(name)) for name in names]
                await asyncio.gather(*(self.functions.run("social_home_push", feed, *scored_ids) for feed in feeds))

    async def remove_deleted_posts(self) -> int:
        """Remove queued deleted and banned posts from existing feeds, latest first; return how many."""
        done = 0
        while entries := await self.valkey.call("ZRANGE", FEEDS_DROP(), 0, POSTS_PER_BATCH - 1, "REV"):
            by_author: dict[str, list[str]] = {}
            for author, _, id in (entry.partition("|") for entry in entries):
                by_author.setdefault(author, []).append(id)
            for author, ids in by_author.items():
                await self.remove_posts(author, ids)
            done += len(entries)
        return done

    async def remove_posts(self, author: str, ids: Sequence[str]) -> None:
        """Remove an author's deleted posts from existing feeds and from the queue."""
        async for followers in self._followers_with_feed(author):
            await self.valkey.batch([("ZREM", TMP_HOME(name), *ids) for name in followers])
        await self.valkey.call("ZREM", FEEDS_DROP(), *(f"{author}|{id}" for id in ids))

    async def _followers_with_feed(self, author: str) -> AsyncIterator[list[str]]:
        key, first, count = USER_FOLLOWERS_RECENT(author), 0, FOLLOWERS_PER_PAGE
        while count == FOLLOWERS_PER_PAGE:
            count, followers = await self._read_followers(key, first)
            first += count
            if followers:
                yield followers

    async def _read_followers(self, key: str, first: int) -> tuple[int, list[str]]:
        """Return how many followers were read, and those who have a feed. One round trip; two on a cluster."""
        last = first + FOLLOWERS_PER_PAGE - 1
        if not self.valkey.clustered:
            count, *followers = await self.functions.query("social_followers_with_feed", [key], first, last)
            return count, followers
        names = await self.valkey.call("ZRANGE", key, first, last)
        found = await self.valkey.batch([("EXISTS", TMP_HOME(name), TMP_HOME_STATE(name)) for name in names])
        return len(names), [name for name, exists in zip(names, found, strict=True) if exists]
