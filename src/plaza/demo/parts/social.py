"""People, posts and what people do with posts: through the same door as what other systems send, in batches.

Posts come before follows: a post by somebody whom nobody follows has no feeds to be pushed into, and a home feed is
built when it is read. A million posts would otherwise leave the worker a million pushes that nobody waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.errors import Conflict
from plaza.demo.plan import Plan
from plaza.social.sync import Kind, Sync

# Followed by so many people each, this makes about a thousand follows.
FOLLOWERS_A_BATCH = 80


class SocialPart:
    def __init__(self, sync: Sync, plan: Plan) -> None:
        self._sync = sync
        self._plan = plan

    async def users(self, batch: int, size: int) -> int:
        return await self._take("user", self._plan.users_of(batch * size, size))

    async def posts(self, batch: int, size: int) -> int:
        made = self._plan.posts_of(batch, size)
        await self._take("post", made.posts)
        await self._take("like", made.likes)
        await self._take("comment", made.comments)
        await self._take("bookmark", made.bookmarks)
        return len(made)

    async def follows(self, batch: int, size: int) -> int:
        return await self._take("follow", self._plan.follows_of(batch * size, size))

    async def _take(self, kind: Kind, records: Sequence[Any]) -> int:
        for first in range(0, len(records), 1000):
            for result in await self._sync.take(kind, records[first : first + 1000]):
                if result.status == "error":
                    raise Conflict(f"A {kind} of the community was refused: {result.error}")
        return len(records)
