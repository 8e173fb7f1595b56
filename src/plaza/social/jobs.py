"""What social does when nobody waits: scores that fade, feeds that fill, copies that follow, traces that go.

Each job works through a queue in Valkey, in batches of bounded size, and can be stopped between any two of them: what
is not done is still in the queue, and doing something twice changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.leases import Lease
from plaza.core.timers import Timer
from plaza.social.deletion import Leaving
from plaza.social.home_fanout import Fanout
from plaza.social.keys import (
    POST,
    POSTS_LEAVING,
    RANKING_DUE,
    RANKING_POSTS,
    USER,
    USER_POSTS,
    USERS_LEAVING,
    USERS_RESTYLE,
)
from plaza.social.posts import Posts
from plaza.social.renaming import Renaming

# About a millisecond of Valkey on one server: each post is in a few ranked sets of its own.
RESCORED = 50
# Where each post is a call of its own, so many are under way at once.
AT_ONCE = 50
# Posts that follow their author's profile in one batch.
RESTYLED = 200


class Jobs:
    """Social's jobs. Each says how much it did."""

    def __init__(
        self,
        functions: Functions,
        posts: Posts,
        leaving: Leaving,
        renaming: Renaming,
        fanout: Fanout,
        clock: Clock,
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts = posts
        self.leaving = leaving
        self.renaming = renaming
        self.fanout = fanout
        self.clock = clock

    def timers(self) -> list[Timer]:
        return [
            # A score is scored again three quarters of the way to being 2% off; half a minute would still do.
            Timer("social.rescore", 5, _saying("posts scored", self.rescore)),
            Timer("social.push", 1, _saying("posts put into feeds or taken out", self.push)),
            Timer("social.restyle", 2, _saying("posts follow their author", self.restyle)),
            Timer("social.leave", 2, _saying("deletions taken up", self.leave)),
            Timer("social.rename", 5, _saying("renamings taken up", self.renaming.resume)),
        ]

    async def rescore(self) -> int:
        """Bring the ranked scores that are due up to date, batch by batch."""
        done = 0
        while True:
            count = await (self._rescore_each() if self.valkey.clustered else self._rescore_batch())
            done += count
            if count < RESCORED:
                return done
            await asyncio.sleep(0)

    async def _rescore_batch(self) -> int:
        keys, now = [RANKING_DUE(), RANKING_POSTS()], self.clock.now_ms()
        count: int = await self.functions.run("social_rescore_due", keys, now, RESCORED)
        return count

    async def _rescore_each(self) -> int:
        now = self.clock.now_ms()
        due: list[str] = await self.valkey.call("ZRANGE", RANKING_DUE(), "-inf", now, "BYSCORE", "LIMIT", 0, RESCORED)
        for some in _some(due, AT_ONCE):
            await asyncio.gather(*(self.functions.run("social_rescore", [POST(id)], id, now) for id in some))
        return len(due)

    async def push(self) -> int:
        """Bring the home feeds that exist nearer to the truth. Reading does not depend on it; other readers do."""
        return await self.fanout.push() + await self.fanout.drop()

    async def restyle(self) -> int:
        """Have posts show their authors' present avatar, display name and role."""
        done, cursor = 0, "0"
        while True:
            cursor, rows = await self.valkey.call("HSCAN", USERS_RESTYLE(), cursor)
            for name in rows[::2]:
                done += await self.restyle_posts_of(name)
            if cursor in ("0", 0):
                return done

    async def restyle_posts_of(self, name: str) -> int:
        """The posts of one author, from where the last run stopped."""
        done, queue = 0, [USERS_RESTYLE()]
        while True:
            noted = await self.valkey.call("HGET", USERS_RESTYLE(), name)
            style = await self.valkey.call("HMGET", USER(name), "version", "avatar", "display_name", "role")
            if noted is None or style[0] is None:
                return done
            version, _, position = noted.partition("|")
            score, _, id = position.partition("|")
            rows = await self.functions.query("social_after", [USER_POSTS(name)], score, id, RESTYLED, "oldest")
            values = [value or "" for value in style]
            for some in _some(rows[::2], AT_ONCE):
                calls = (self.functions.run("social_restyle_post", [POST(id)], id, *values) for id in some)
                await asyncio.gather(*calls)
            done += len(rows) // 2
            reached = f"{rows[-1]}|{rows[-2]}" if len(rows) == 2 * RESTYLED else ""
            await self.functions.run("social_restyle_progress", queue, name, version, reached)
            if not reached:
                return done

    async def leave(self) -> int:
        """Go on with deletions that were too large for their request, or whose process died."""
        posts: list[str] = await self.valkey.call("ZRANGE", POSTS_LEAVING(), 0, AT_ONCE - 1)
        for id in posts:
            await self.posts.purge(id)
        names: list[str] = await self.valkey.call("ZRANGE", USERS_LEAVING(), 0, AT_ONCE - 1)
        for name in names:
            await self.leaving.sweep(name)
        return len(posts) + len(names)


def _saying(what: str, job: Callable[[], Awaitable[int]]) -> Callable[[Lease], Awaitable[str]]:
    """A job as a timer runs it: how much it did, in words for whoever looks after it."""

    async def run(_: Lease) -> str:
        return f"{await job()} {what}"

    return run


def _some(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[first : first + size] for first in range(0, len(items), size)]
