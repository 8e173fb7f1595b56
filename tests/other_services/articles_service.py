"""Another service for articles: it writes by the document, one plain command after the other."""

from __future__ import annotations

import time
from typing import Any

from tests.other_services.running import PlazaBesideOthers

VOTE_SECONDS = 432


class ArticlesService:
    """Writes and reads the keys of the articles document."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.client: Any = beside.client
        self.owned = beside.owned

    async def post(self, user: str, title: str, link: str, at: float | None = None) -> int:
        """Post an article with its author's vote, in the order of the book that the document comes from."""
        id = int(await self.client.incr("article:"))
        posted = time.time() if at is None else at
        await self.client.sadd(f"upvoted:{self.owned(id)}", user)
        fields = {"title": title, "link": link, "author": user, "time": str(posted), "votes": "1"}
        await self.client.hset(f"article:{self.owned(id)}", mapping=fields)
        await self.client.zadd("score:", {f"article:{id}": posted + VOTE_SECONDS})
        await self.client.zadd("time:", {f"article:{id}": posted})
        return id

    async def vote(self, user: str, id: int, direction: int) -> None:
        """Vote up (1) or down (-1), unless the user has voted so already. A switch moves the vote."""
        here, there = f"upvoted:{self.owned(id)}", f"downvoted:{self.owned(id)}"
        if direction < 0:
            here, there = there, here
        if not await self.client.sadd(here, user):
            return
        votes = direction * (2 if await self.client.srem(there, user) else 1)
        await self.client.zincrby("score:", votes * VOTE_SECONDS, f"article:{id}")
        await self.client.hincrby(f"article:{self.owned(id)}", "votes", votes)

    async def add_to_group(self, id: int, group: str) -> None:
        await self.client.sadd(f"group:{self.owned(group)}", f"article:{id}")

    async def remove_from_group(self, id: int, group: str) -> None:
        await self.client.srem(f"group:{self.owned(group)}", f"article:{id}")

    async def build_group_ranking(self, group: str) -> None:
        """Write `score:<group>` for a minute. On a cluster the two keys are on different nodes."""
        scores = dict(await self.client.zrange("score:", 0, -1, withscores=True))
        members = await self.client.smembers(f"group:{self.owned(group)}")
        ranking = f"score:{self.owned(group)}"
        await self.client.delete(ranking)
        await self.client.zadd(ranking, {member: scores[member] for member in members})
        await self.client.expire(ranking, 60)
