"""People, posts and what people do with posts: through the same doors as what other systems send, in batches.

Posts come before follows: a post by somebody whom nobody follows has no feeds to be pushed into, and a home feed is
built when it is read. A million posts would otherwise leave the worker a million pushes that nobody waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from plaza.core.errors import Conflict
from plaza.demo.generator import CommunityPlan, GeneratedPost
from plaza.social.bulk_import import BulkImport
from plaza.social.sync import MAX_RECORDS, Kind, Sync

# Followed by so many people each, this makes about a thousand follows.
FOLLOWERS_A_BATCH = 80


class SocialLoader:
    def __init__(self, sync: Sync, plan: CommunityPlan) -> None:
        self._sync = sync
        self._bulk_import = BulkImport(sync)
        self._plan = plan

    async def users(self, batch: int, size: int) -> int:
        return await self._take("user", self._plan.users_of(batch * size, size))

    async def posts(self, batch: int, size: int) -> int:
        stories = self._plan.posts_of(batch, size)
        new = await asyncio.gather(*(self._bulk_import.import_post(s.post, s.likes, s.comments) for s in stories))
        await self._compare([story for story, brought in zip(stories, new, strict=True) if not brought])
        await self._take("bookmark", [mark for story in stories for mark in story.bookmarks])
        return sum(map(len, stories))

    async def posts_in_pieces(self, batch: int, size: int) -> int:
        """The same, record by record, as when most of it is here already."""
        stories = self._plan.posts_of(batch, size)
        await self._compare(stories)
        await self._take("bookmark", [mark for story in stories for mark in story.bookmarks])
        return sum(map(len, stories))

    async def _compare(self, stories: Sequence[GeneratedPost]) -> None:
        """Posts that are here already, as a run that was broken off left them: what is missing is added."""
        await self._take("post", [story.post for story in stories])
        await self._take("like", [like for story in stories for like in story.likes])
        await self._take("comment", [comment for story in stories for comment in story.comments])

    async def follows(self, batch: int, size: int) -> int:
        records = self._plan.follows_of(batch * size, size)
        each = [(name, list(some)) for name, some in groupby(records, key=lambda follow: follow.follower)]
        await asyncio.gather(*(self._bulk_import.import_follows(name, some) for name, some in each))
        return len(records)

    async def _take(self, kind: Kind, records: Sequence[Any]) -> int:
        for first in range(0, len(records), MAX_RECORDS):
            for result in await self._sync.apply(kind, records[first : first + MAX_RECORDS]):
                if result.status == "error":
                    raise Conflict(f"A {kind} of the community was refused: {result.error}")
        return len(records)
