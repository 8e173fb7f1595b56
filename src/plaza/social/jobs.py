"""Social's background jobs: rescore posts, update home feeds and post copies, continue deletions and renamings.

Each job works through a queue in Valkey in batches and can stop after any of them: what is not done stays in the queue,
and doing something twice changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from plaza.core.clock import Clock
from plaza.core.due_times import make_all_due
from plaza.core.functions import Functions
from plaza.core.leases import Lease
from plaza.core.sequences import chunks
from plaza.core.timers import Timer
from plaza.core.valkey import scan_pages
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_renaming import AccountRenaming
from plaza.social.home_feed_updates import HomeFeedUpdates
from plaza.social.keys import (
    POST,
    POSTS_LEAVING,
    RANKING_DUE,
    RANKING_POSTS,
    USER_POSTS,
    USERS_LEAVING,
    USERS_RESTYLE,
)
from plaza.social.posts import Posts
from plaza.social.users import read_copied_profile

# About a millisecond of Valkey on one server: each post is in a few ranked sets.
RESCORE_BATCH = 50
# Commands in flight at once where each post needs one of its own.
MAX_CONCURRENT = 50
# Posts that get their author's new profile in one batch.
RESTYLE_BATCH = 200


class SocialJobs:
    """Each job returns how much it did."""

    def __init__(
        self,
        functions: Functions,
        posts: Posts,
        deletion: AccountDeletion,
        renaming: AccountRenaming,
        fanout: HomeFeedUpdates,
        clock: Clock,
    ) -> None:
        self.functions = functions
        self.valkey = functions.valkey
        self.posts = posts
        self.deletion = deletion
        self.renaming = renaming
        self.fanout = fanout
        self.clock = clock

    def timers(self) -> list[Timer]:
        return [
            # A post is due when three quarters of the 2% tolerance are used; even 30 s late would be in time.
            Timer("social.rescore", 5, _reporting("posts rescored", self.rescore)),
            Timer("social.push", 1, _reporting("posts added to feeds or removed", self.update_home_feeds)),
            Timer("social.restyle", 2, _reporting("posts updated from profiles", self.restyle)),
            Timer("social.leave", 2, _reporting("deletions continued", self.continue_deletions)),
            Timer("social.rename", 5, _reporting("renamings continued", self.renaming.resume)),
        ]

    async def rescore(self) -> int:
        """Update the ranked scores that are due."""
        done = 0
        while True:
            count = await (self._rescore_each() if self.valkey.clustered else self._rescore_batch())
            done += count
            if count < RESCORE_BATCH:
                return done
            await asyncio.sleep(0)

    async def _rescore_batch(self) -> int:
        keys, now = [RANKING_DUE(), RANKING_POSTS()], self.clock.now_ms()
        count: int = await self.functions.run("social_rescore_due", keys, now, RESCORE_BATCH)
        return count

    async def _rescore_each(self) -> int:
        now, limit = self.clock.now_ms(), ("LIMIT", 0, RESCORE_BATCH)
        due: list[str] = await self.valkey.call("ZRANGE", RANKING_DUE(), "-inf", now, "BYSCORE", *limit)
        records = await self.valkey.call("HMGET", RANKING_POSTS(), *due) if due else []
        for rows in chunks(list(zip(due, records, strict=True)), MAX_CONCURRENT):
            await asyncio.gather(
                *(
                    self.functions.run("social_rescore", [POST(id)], id, now, (record or "").rpartition("|")[2])
                    for id, record in rows
                )
            )
        return len(due)

    async def make_all_due(self) -> None:
        """Have all posts rescored: a clock was set back, so their scores and due times are those of a later time."""
        await make_all_due(self.valkey, RANKING_DUE(), self.clock.now_ms())

    async def update_home_feeds(self) -> int:
        """Remove deleted posts from existing home feeds, then add new ones, for services that read them directly."""
        return await self.fanout.remove_deleted_posts() + await self.fanout.add_new_posts()

    async def restyle(self) -> int:
        """Copy changed avatars, display names and roles to their users' posts."""
        done = 0
        async for rows in scan_pages(self.valkey, "HSCAN", USERS_RESTYLE(), count=10):
            for name in rows[::2]:
                done += await self.restyle_posts_of(name)
        return done

    async def restyle_posts_of(self, name: str) -> int:
        """Copy one user's profile to their posts, from where the last run stopped."""
        done = 0
        while True:
            progress = await self.valkey.call("HGET", USERS_RESTYLE(), name)
            if progress is None:
                return done
            copied = await read_copied_profile(self.valkey, name)
            if copied is None:
                return done
            version, _, position = progress.partition("|")
            score, _, id = position.partition("|")
            rows = await self.functions.query("social_after", [USER_POSTS(name)], score, id, RESTYLE_BATCH, "oldest")
            for ids in chunks(rows[::2], MAX_CONCURRENT):
                calls = (self.functions.run("social_restyle_post", [POST(id)], id, *copied) for id in ids)
                await asyncio.gather(*calls)
            done += len(rows) // 2
            reached = f"{rows[-1]}|{rows[-2]}" if len(rows) == 2 * RESTYLE_BATCH else ""
            await self.functions.run("social_restyle_progress", [USERS_RESTYLE()], name, version, reached)
            if not reached:
                return done

    async def continue_deletions(self) -> int:
        """Continue deletions that were too large for their request, or whose process died."""
        posts: list[str] = await self.valkey.call("ZRANGE", POSTS_LEAVING(), 0, MAX_CONCURRENT - 1)
        for id in posts:
            await self.posts.purge(id)
        names: list[str] = await self.valkey.call("ZRANGE", USERS_LEAVING(), 0, MAX_CONCURRENT - 1)
        for name in names:
            await self.deletion.finish(name)
        return len(posts) + len(names)


def _reporting(what: str, job: Callable[[], Awaitable[int]]) -> Callable[[Lease], Awaitable[str]]:
    """Wrap a job for a timer: it reports how much it did, for operators."""

    async def run(_: Lease) -> str:
        return f"{await job()} {what}"

    return run
