"""Users post, like and follow through Plaza and another service at the same time, and nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.other_services.interleaving import USERS, Slots, interleave, is_ours
from tests.other_services.running import PlazaBesideOthers
from tests.other_services.social_service import SocialService


class SocialTraffic:
    """Users like, bookmark, comment, follow, post and delete through both services. Knows what must be the result."""

    TAGS = ("tea",)

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = SocialService(beside)
        self.slots = Slots()
        self.posts: dict[str, str] = {}
        self.relations: dict[str, set[tuple[str, str]]] = {"like": set(), "bookmark": set(), "follow": set()}
        self.comments: Counter[str] = Counter()

    async def start(self) -> None:
        for n, name in enumerate(USERS):
            await self.other.register(name, "model" if n % 2 else "user")
        for name in USERS[:3]:
            await self._post(random.Random(1), name)

    @property
    def operations(self) -> list[Any]:
        return [self.like, self.like, self.bookmark, self.follow, self.comment, self.post, self.delete]

    async def _send(self, method: str, path: str, username: str, body: Any = None) -> Any:
        answer = await self.beside.send(method, path, username, body)
        assert answer.status_code in (200, 201), f"{method} {path}: {answer.text}"
        return answer.json()

    async def _toggle(self, dice: random.Random, kind: str, name: str, target: str, path: str) -> None:
        async with self.slots.take((kind, name, target), target) as is_open:
            if not is_open:
                return
            pairs = self.relations[kind]
            on = (name, target) not in pairs
            if is_ours(dice):
                await self._send("POST" if on else "DELETE", path, name)
            else:
                undo = {"like": "unlike", "bookmark": "unbookmark", "follow": "unfollow"}
                args = () if kind == "follow" else (list(self.TAGS),)
                await getattr(self.other, kind if on else undo[kind])(name, target, *args)
            (pairs.add if on else pairs.discard)((name, target))

    async def like(self, dice: random.Random) -> None:
        id = dice.choice([*self.posts])
        await self._toggle(dice, "like", dice.choice(USERS), id, f"/posts/{id}/like")

    async def bookmark(self, dice: random.Random) -> None:
        id = dice.choice([*self.posts])
        await self._toggle(dice, "bookmark", dice.choice(USERS), id, f"/posts/{id}/bookmark")

    async def follow(self, dice: random.Random) -> None:
        name, target = dice.sample(USERS, 2)
        await self._toggle(dice, "follow", name, target, f"/users/{target}/follow")

    async def comment(self, dice: random.Random) -> None:
        id, name = dice.choice([*self.posts]), dice.choice(USERS)
        async with self.slots.take(("comment", dice.random()), id) as is_open:
            if is_open and is_ours(dice):
                await self._send("POST", f"/posts/{id}/comments", name, {"content": "Indeed"})
            elif is_open:
                await self.other.comment(name, id, "Indeed", list(self.TAGS))
            self.comments[id] += is_open

    async def post(self, dice: random.Random) -> None:
        if len(self.posts) < 12:
            await self._post(dice, dice.choice(USERS))

    async def _post(self, dice: random.Random, name: str) -> None:
        if is_ours(dice):
            id = (await self._send("POST", "/posts", name, {"content": "Hello #tea"}))["id"]
        else:
            id = await self.other.create_post(name, "Hello #tea", list(self.TAGS))
        self.posts[id] = name

    async def delete(self, dice: random.Random) -> None:
        if len(self.posts) < 6:
            return
        id = dice.choice([*self.posts])
        author = self.posts.pop(id)
        await self.slots.close(id)
        if is_ours(dice):
            await self._send("DELETE", f"/posts/{id}", author)
        else:
            for name in USERS:  # the document leaves the bookmarks of a deleted post; they lead nowhere
                await self.beside.client.zrem(f"user:{self.beside.owned(name)}:bookmarked", id)
            await self.other.delete_post(id, author, list(self.TAGS))
            await self.beside.client.delete(f"post:{self.beside.owned(id)}:comments")
        for pairs in self.relations.values():
            pairs.difference_update([pair for pair in pairs if pair[1] == id])
        del self.comments[id]

    async def assert_nothing_lost(self) -> None:
        client, owned = self.beside.client, self.beside.owned
        assert set(await client.zrange("explore:feed", 0, -1)) == set(self.posts)
        for id, author in self.posts.items():
            key = f"post:{owned(id)}"
            counts = await client.hmget(key, "likesCount", "bookmarksCount", "commentsCount")
            likes = {name for name, post in self.relations["like"] if post == id}
            marks = {name for name, post in self.relations["bookmark"] if post == id}
            assert await client.smembers(f"{key}:likes") == likes
            assert await client.smembers(f"{key}:bookmarks") == marks
            assert await client.llen(f"{key}:comments") == self.comments[id]
            assert counts == [str(len(likes)), str(len(marks)), str(self.comments[id])]
            assert await client.zscore(f"user:{owned(author)}:posts", id) is not None
        for name in USERS:
            key = f"user:{owned(name)}"
            posts = {id for id, author in self.posts.items() if author == name}
            following = {target for user, target in self.relations["follow"] if user == name}
            followers = {user for user, target in self.relations["follow"] if target == name}
            assert set(await client.zrange(f"{key}:posts", 0, -1)) == posts
            assert await client.smembers(f"{key}:following") == following
            assert await client.smembers(f"{key}:followers") == followers
            counts = await client.hmget(key, "postCount", "followingCount", "followerCount")
            assert counts == [str(len(posts)), str(len(following)), str(len(followers))]

    async def assert_shown(self) -> None:
        points: Counter[str] = Counter()
        for id, author in self.posts.items():
            likes = {name for name, post in self.relations["like"] if post == id}
            marks = {name for name, post in self.relations["bookmark"] if post == id}
            for name in USERS:
                shown = await self.beside.get(f"/posts/{id}", name)
                assert (shown["isLiked"], shown["isBookmarked"]) == (name in likes, name in marks)
            page = await self.beside.get(f"/posts/{id}/likes", author)
            assert {user["id"] for user in page["users"]} == likes
            comments = await self.beside.get(f"/posts/{id}/comments?limit=100", author)
            assert comments["pagination"]["count"] == min(100, self.comments[id])
            points[author] += 3 * len(likes) + 4 * len(marks) + 5 * self.comments[id]
        for name in USERS:
            for side in ("following", "followers"):
                page = await self.beside.get(f"/users/{name}/{side}", name)
                pairs = self.relations["follow"]
                expected = (
                    {b for a, b in pairs if a == name} if side == "following" else {a for a, b in pairs if b == name}
                )
                assert {user["id"] for user in page["users"]} == expected
            followed = {target for user, target in self.relations["follow"] if user == name}
            home = await self.beside.get("/feed/following?limit=100", name)
            assert {item["post"]["id"] for item in home["posts"]} == {
                id for id, author in self.posts.items() if author in followed
            }
        top = await self.beside.get("/search/models/top?limit=100", USERS[0])
        assert {user["id"]: user["engagement"] for user in top["users"]} == {name: points[name] for name in USERS[1::2]}


async def test_social_services_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = SocialTraffic(beside)
    await traffic.start()
    await interleave(beside, traffic.operations)
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    before = await beside.documented_keys()
    report = await beside.repair()
    assert report.clean, report.left
    await traffic.assert_nothing_lost()
    await traffic.assert_shown()
    assert before.keys() - (await beside.documented_keys()).keys() == set()
    assert (await beside.audit()).clean
