"""Another social service: it writes by the document, one plain command after the other."""

from __future__ import annotations

import uuid
from typing import Any

from tests.other_services.running import PlazaBesideOthers

HOUR_MS = 3_600_000

PRIVATE_FIELDS = {
    "first_name": "Alice",
    "last_name": "Smith",
    "email": "alice@example.com",
    "phone": "+1 555 0100",
    "phone_number": "+1 555 0101",
    "address": "1 Main Street",
    "date_of_birth": "1990-01-02",
    "birth_date": "1990-01-03",
    "ssn": "078-05-1120",
    "credit_card": "4111 1111 1111 1111",
    "bank_account": "DE89 3704 0044 0532 0130 00",
    "ip_address": "198.51.100.7",
    "device_id": "device-1",
}


class SocialService:
    """Writes and reads the keys of the social document."""

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.client: Any = beside.client
        self.owned = beside.owned
        self.now = beside.plaza.core.clock.now_ms

    async def register(self, name: str, role: str = "user", created: int | None = None, **fields: str) -> None:
        at = self.now() if created is None else created
        public = {"username": name, "display_name": name.title(), "bio": "", "avatar": "", "links": "", "role": role}
        counters = {"postCount": 0, "followerCount": 0, "followingCount": 0}
        mapping = {**public, **counters, "created_at": at, **fields}
        await self.client.hset(f"user:{self.owned(name)}", mapping=mapping)
        registry = {"user": "users:regular", "model": "users:models"}.get(role)
        if registry is not None:
            await self.client.zadd(registry, {name: at})
        if role == "model":
            await self.client.zadd("models:top:engagement", {name: 0})

    async def create_post(
        self, author: str, content: str, tags: list[str], created: int | None = None, **fields: str
    ) -> str:
        id, at = str(uuid.uuid4()), self.now() if created is None else created
        profile = await self.client.hgetall(f"user:{self.owned(author)}")
        core = {"id": id, "user_id": author, "content": content, "media_url": "", "created_at": at}
        copied = {"username": author, "user_role": profile["role"]}
        copied |= {name: profile.get(name, "") for name in ("avatar", "display_name")}
        counters = {"likesCount": 0, "commentsCount": 0, "bookmarksCount": 0}
        await self.client.hset(f"post:{self.owned(id)}", mapping={**core, **copied, **counters, **fields})
        await self.client.zadd("explore:feed", {id: at})
        for tag in tags:
            await self.client.zadd(f"hashtag:{self.owned(tag)}:posts", {id: at})
            await self.client.zadd(f"hashtag:{self.owned(tag)}:ranked", {id: 0})
        await self.client.zadd(f"user:{self.owned(author)}:posts", {id: at})
        await self.client.hincrby(f"user:{self.owned(author)}", "postCount", 1)
        return id

    async def delete_post(self, id: str, author: str, tags: list[str]) -> None:
        post = f"post:{self.owned(id)}"
        for key in (post, f"{post}:likes", f"{post}:bookmarks"):
            await self.client.delete(key)
        await self.client.zrem("explore:feed", id)
        for tag in tags:
            await self.client.zrem(f"hashtag:{self.owned(tag)}:posts", id)
            await self.client.zrem(f"hashtag:{self.owned(tag)}:ranked", id)
        await self.client.zrem(f"user:{self.owned(author)}:posts", id)
        await self.client.hincrby(f"user:{self.owned(author)}", "postCount", -1)

    async def follow(self, name: str, target: str) -> None:
        if await self.client.sadd(f"user:{self.owned(name)}:following", target):
            await self.client.sadd(f"user:{self.owned(target)}:followers", name)
            await self.client.hincrby(f"user:{self.owned(name)}", "followingCount", 1)
            await self.client.hincrby(f"user:{self.owned(target)}", "followerCount", 1)

    async def unfollow(self, name: str, target: str) -> None:
        if await self.client.srem(f"user:{self.owned(name)}:following", target):
            await self.client.srem(f"user:{self.owned(target)}:followers", name)
            await self.client.hincrby(f"user:{self.owned(name)}", "followingCount", -1)
            await self.client.hincrby(f"user:{self.owned(target)}", "followerCount", -1)

    async def like(self, name: str, id: str, tags: list[str]) -> None:
        if await self.client.sadd(f"post:{self.owned(id)}:likes", name):
            await self._count(id, "likesCount", 1, tags)

    async def unlike(self, name: str, id: str, tags: list[str]) -> None:
        if await self.client.srem(f"post:{self.owned(id)}:likes", name):
            await self._count(id, "likesCount", -1, tags)

    async def bookmark(self, name: str, id: str, tags: list[str], at: int | None = None) -> None:
        if await self.client.sadd(f"post:{self.owned(id)}:bookmarks", name):
            await self.client.zadd(f"user:{self.owned(name)}:bookmarked", {id: self.now() if at is None else at})
            await self._count(id, "bookmarksCount", 1, tags)

    async def unbookmark(self, name: str, id: str, tags: list[str]) -> None:
        if await self.client.srem(f"post:{self.owned(id)}:bookmarks", name):
            await self.client.zrem(f"user:{self.owned(name)}:bookmarked", id)
            await self._count(id, "bookmarksCount", -1, tags)

    async def comment(self, name: str, id: str, content: str, tags: list[str], at: int | None = None) -> str:
        """Add a comment: a hash, and its id at the end of the post's list."""
        comment = str(uuid.uuid4())
        fields = {"id": comment, "post_id": id, "username": name, "content": content}
        mapping = {**fields, "created_at": self.now() if at is None else at}
        await self.client.hset(f"comment:{self.owned(comment)}", mapping=mapping)
        await self.client.rpush(f"post:{self.owned(id)}:comments", comment)
        await self._count(id, "commentsCount", 1, tags)
        return comment

    async def _count(self, id: str, counter: str, difference: int, tags: list[str]) -> None:
        """Change a counter of a post, and recalculate its engagement score and its author's."""
        await self.client.hincrby(f"post:{self.owned(id)}", counter, difference)
        post = await self.client.hgetall(f"post:{self.owned(id)}")
        hours = (self.now() - int(post["created_at"])) / HOUR_MS
        points = int(post["likesCount"]) * 3 + int(post["commentsCount"]) * 5 + int(post["bookmarksCount"]) * 4
        for tag in tags:
            await self.client.zadd(f"hashtag:{self.owned(tag)}:ranked", {id: points / (hours + 1)})
        if post["user_role"] == "model":
            weight = {"likesCount": 3, "commentsCount": 5, "bookmarksCount": 4}[counter]
            await self.client.zincrby("models:top:engagement", weight * difference, post["user_id"])

    async def build_home(self, name: str, followed: list[str], seconds: int = 60) -> None:
        """Write the home feed: the union of the followed users' posts, with a short lifetime."""
        home = f"tmp:home:{self.owned(name)}"
        posts: dict[str, float] = {}
        for other in followed:
            posts |= dict(await self.client.zrange(f"user:{self.owned(other)}:posts", 0, -1, withscores=True))
        await self.client.delete(home)
        if posts:
            await self.client.zadd(home, posts)
            await self.client.expire(home, seconds)
