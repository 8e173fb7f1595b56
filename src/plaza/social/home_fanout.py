"""Home feeds that exist, kept near the truth in the background: new posts go in, deleted ones come out.

A reader depends on neither, since every read merges what is new and leaves out what is gone. But other services may
read `tmp:home:<username>` too, and a deleted post should be nowhere. Only feeds that exist are touched: an author with
a million followers costs a question for each, 500 at a time, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from plaza.core.functions import Functions
from plaza.social.keys import FEEDS_DROP, FEEDS_PUSH, POST, TMP_HOME, TMP_HOME_STATE, USER_FOLLOWERS_RECENT

# Followers asked at once whether they have a feed.
ASKED = 500
# Posts taken from a queue at once, and feeds that are written to at once.
AT_ONCE = 50


class Fanout:
    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.valkey = functions.valkey

    async def push(self) -> int:
        """Put new posts into the feeds of their authors' followers."""
        done = 0
        while ids := await self.valkey.call("ZRANGE", FEEDS_PUSH(), 0, AT_ONCE - 1):
            for id in ids:
                await self._push(id)
                await self.valkey.call("ZREM", FEEDS_PUSH(), id)
                done += 1
        return done

    async def _push(self, id: str) -> None:
        author, created, banned = await self.valkey.call("HMGET", POST(id), "user_id", "created_at", "banned")
        if author is None or banned is not None:
            return
        async for reading in self._reading(author):
            for first in range(0, len(reading), AT_ONCE):
                homes = [(TMP_HOME(name), TMP_HOME_STATE(name)) for name in reading[first : first + AT_ONCE]]
                await asyncio.gather(*(self.functions.run("social_home_push", home, created, id) for home in homes))

    async def drop(self) -> int:
        """Take deleted posts out of the feeds of their authors' followers."""
        done = 0
        while entries := await self.valkey.call("ZRANGE", FEEDS_DROP(), 0, AT_ONCE - 1):
            for entry in entries:
                author, _, id = entry.partition("|")
                await self.take_out(author, [id])
                done += 1
        return done

    async def take_out(self, author: str, ids: Sequence[str]) -> None:
        """Take an author's deleted posts out of the feeds there are."""
        async for reading in self._reading(author):
            await self.valkey.batch([("ZREM", TMP_HOME(name), *ids) for name in reading])
        await self.valkey.call("ZREM", FEEDS_DROP(), *(f"{author}|{id}" for id in ids))

    async def _reading(self, author: str) -> AsyncIterator[list[str]]:
        """The followers who have a feed, some at a time."""
        first = 0
        while names := await self.valkey.call("ZRANGE", USER_FOLLOWERS_RECENT(author), first, first + ASKED - 1):
            there = await self.valkey.batch([("EXISTS", TMP_HOME_STATE(name)) for name in names])
            reading = [name for name, exists in zip(names, there, strict=True) if exists]
            if reading:
                yield reading
            first += ASKED
