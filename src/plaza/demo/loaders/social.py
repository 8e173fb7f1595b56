"""Loads users, posts and reactions in batches, through the same services as imports from other systems.

Posts come before follows. A post by an author without followers is pushed to no feed, and home feeds are built when
they are read. Otherwise a million posts would leave the worker a million useless pushes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from plaza.core.errors import Conflict
from plaza.core.sequences import chunks
from plaza.demo.generator import CommunityPlan, GeneratedPost
from plaza.social.bulk_import import BulkImport
from plaza.social.inbound_sync import MAX_RECORDS, InboundSync, Kind

# About a thousand follows per batch.
FOLLOWERS_PER_BATCH = 80


class SocialLoader:
    def __init__(self, sync: InboundSync, plan: CommunityPlan) -> None:
        self._sync = sync
        self._bulk_import = BulkImport(sync)
        self._plan = plan

    async def users(self, batch: int, size: int) -> int:
        return await self._take("user", self._plan.generate_users(batch * size, size))

    async def posts(self, batch: int, size: int) -> int:
        items = self._plan.generate_posts(batch, size)
        new = await asyncio.gather(*(self._bulk_import.import_post(s.post, s.likes, s.comments) for s in items))
        await self._compare([item for item, brought in zip(items, new, strict=True) if not brought])
        await self._take("bookmark", [mark for item in items for mark in item.bookmarks])
        return sum(map(len, items))

    async def posts_by_record(self, batch: int, size: int) -> int:
        """Load posts record by record, as when most of them exist already. The benchmark compares both ways."""
        items = self._plan.generate_posts(batch, size)
        await self._compare(items)
        await self._take("bookmark", [mark for item in items for mark in item.bookmarks])
        return sum(map(len, items))

    async def _compare(self, items: Sequence[GeneratedPost]) -> None:
        """Add what is missing to posts that an interrupted run left."""
        await self._take("post", [item.post for item in items])
        await self._take("like", [like for item in items for like in item.likes])
        await self._take(
            "comment",
            [comment for item in items for comment in item.comments],
        )

    async def follows(self, batch: int, size: int) -> int:
        records = self._plan.generate_follows(batch * size, size)
        each = [(name, list(some)) for name, some in groupby(records, key=lambda follow: follow.follower)]
        await asyncio.gather(*(self._bulk_import.import_follows(name, some) for name, some in each))
        return len(records)

    async def _take(self, kind: Kind, records: Sequence[Any]) -> int:
        for chunk in chunks(records, MAX_RECORDS):
            for result in await self._sync.apply(kind, chunk):
                if result.status == "error":
                    raise Conflict(f"A {kind} of the community was refused: {result.error}")
        return len(records)
