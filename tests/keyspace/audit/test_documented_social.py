"""Another service writes a small social network by the document alone. Plaza shows all of it and changes none of it."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

import pytest

from plaza.app import Plaza
from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.keyspace.audit import REPAIR, Audits, recheck, throttle
from plaza.social import keys as k
from plaza.social.engagements import Engagements
from plaza.social.feeds import Feeds
from plaza.social.home_feed import HomeFeed
from plaza.social.jobs import SocialJobs
from plaza.social.posts import Posts
from plaza.social.relations import Relations
from plaza.social.users import Users
from tests.keyspace.audit.dump import dump

USERS = {"ana": "user", "ben": "model", "cleo": "user", "root": "admin"}


class DocumentedService:
    """Writes as the document says, with plain commands."""

    def __init__(self, client: Any, now_ms: int) -> None:
        self.client = client
        self.now = now_ms

    async def register(self, name: str, role: str) -> None:
        fields = {"username": name, "display_name": name.title(), "bio": "", "avatar": "", "links": "", "role": role}
        counters = {"postCount": 0, "followerCount": 0, "followingCount": 0}
        created = self.now - 90_000_000
        await self.client.hset(
            k.USER(name), mapping={**fields, **counters, "created_at": created, "email": "x@y.example"}
        )
        registry = {"user": k.USERS_REGULAR(), "model": k.USERS_MODELS()}.get(role)
        if registry:
            await self.client.zadd(registry, {name: created})

    async def create_post(self, author: str, content: str, tags: list[str], age_ms: int = 0) -> str:
        id, at = str(uuid.uuid4()), self.now - age_ms
        fields = {"id": id, "user_id": author, "content": content, "media_url": "https://img.example/1.png"}
        copied = {"username": author, "avatar": "", "display_name": author.title(), "user_role": USERS[author]}
        counters = {"likesCount": 0, "commentsCount": 0, "bookmarksCount": 0, "created_at": at}
        await self.client.hset(k.POST(id), mapping={**fields, **copied, **counters})
        await self.client.zadd(k.EXPLORE_FEED(), {id: at})
        for tag in tags:
            await self.client.zadd(k.HASHTAG_POSTS(tag), {id: at})
            await self.client.zadd(k.HASHTAG_RANKED(tag), {id: 0})
        await self.client.zadd(k.USER_POSTS(author), {id: at})
        await self.client.hincrby(k.USER(author), "postCount", 1)
        return id

    async def follow(self, name: str, target: str) -> None:
        await self.client.sadd(k.USER_FOLLOWING(name), target)
        await self.client.sadd(k.USER_FOLLOWERS(target), name)
        await self.client.hincrby(k.USER(name), "followingCount", 1)
        await self.client.hincrby(k.USER(target), "followerCount", 1)

    async def like(self, name: str, id: str) -> bool:
        if not await self.client.sadd(k.POST_LIKES(id), name):
            return False
        await self.client.hincrby(k.POST(id), "likesCount", 1)
        return True

    async def bookmark(self, name: str, id: str) -> None:
        await self.client.sadd(k.POST_BOOKMARKS(id), name)
        await self.client.zadd(k.USER_BOOKMARKED(name), {id: self.now})
        await self.client.hincrby(k.POST(id), "bookmarksCount", 1)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recheck, "SHORT_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(throttle, "TRAFFIC_PER_SECOND", 1_000_000)
    monkeypatch.setattr(throttle, "FIRST_MEASURE_SECONDS", 0.0)


@pytest.fixture
async def other(plaza: Plaza, redis_client: Any) -> DocumentedService:
    service = DocumentedService(redis_client, plaza.core.clock.now_ms())
    for name, role in USERS.items():
        await service.register(name, role)
    return service


def documented(values: dict[str, Any]) -> dict[str, Any]:
    """Return the documented keys of a dump, without scores that depend on points and time."""
    found = {}
    for name, (value, _) in values.items():
        match = k.CATALOGUE.match(name)
        if match is not None and match.key.document and match.key not in (k.HASHTAG_RANKED, k.MODELS_TOP_ENGAGEMENT):
            found[name] = value
    return found


async def test_plaza_shows_what_another_service_wrote_and_a_repair_changes_no_documented_key(
    plaza: Plaza, audits: Audits, other: DocumentedService, redis_client: Any
) -> None:
    first = await other.create_post("ana", "Good morning #Tea", ["tea"], 60_000)
    second = await other.create_post("ben", "Off to #Paris #été", ["paris", "été"], 30_000)
    for name in ("ana", "cleo"):
        await other.follow(name, "ben")
    await other.follow("ben", "ana")
    for name in ("ana", "cleo", "root"):
        await other.like(name, second)
    await other.bookmark("cleo", first)
    before = documented(await dump(redis_client))

    report = await audits.run(REPAIR)
    assert report.clean, report.left
    await plaza.get(SocialJobs).rescore()
    assert documented(await dump(redis_client)) == before
    assert (await audits.run()).clean

    cleo, page = Actor("cleo", "user"), Page()
    feeds, relations = plaza.get(Feeds), plaza.get(Relations)
    explored = (await feeds.explore(cleo, page)).items
    assert [(item.post.id, item.post.isLiked, item.post.isBookmarked) for item in explored] == [
        (second, True, False),
        (first, False, True),
    ]
    assert [item.post.id for item in (await plaza.get(HomeFeed).page(cleo, page)).items] == [second]
    assert [item.post.id for item in (await feeds.hashtag(cleo, "été", page)).items] == [second]
    assert [item.post.id for item in (await feeds.ranked(cleo, "tea", page)).items] == [first]
    assert [item.post.id for item in (await feeds.bookmarked(cleo, "cleo", page)).items] == [first]
    assert {user.id for user in (await relations.followers(cleo, "ben", page)).items} == {"ana", "cleo"}
    assert {user.id for user in (await relations.following(cleo, "ben", page)).items} == {"ana"}
    assert {user.id for user in (await plaza.get(Engagements).likes(cleo, second, page)).items} == {
        "ana",
        "cleo",
        "root",
    }
    assert {user.id for user in (await plaza.get(Users).newest(cleo, "user", page)).items} == {"ana", "cleo"}
    assert [(user.id, user.engagement) for user in (await feeds.top_models(cleo, page)).items] == [("ben", 9)]
    assert (await plaza.get(Users).get(cleo, "ben")).followerCount == 2


async def test_plaza_and_another_service_write_at_the_same_time_without_a_loss(
    plaza: Plaza, audits: Audits, other: DocumentedService, redis_client: Any
) -> None:
    posts = [await other.create_post("ben", f"#tea {n}", ["tea"], n) for n in range(5)]
    names = [f"fan{n}" for n in range(40)]
    for name in names:
        await other.register(name, "user")
    engagements, relations, dice = plaza.get(Engagements), plaza.get(Relations), random.Random(1)
    liked: set[tuple[str, str]] = set()

    async def write_through_plaza(name: str) -> None:
        for id in dice.sample(posts, 3):
            await engagements.like(Actor(name, "user"), id)
            liked.add((id, name))
        await relations.follow(Actor(name, "user"), "ben")

    async def write_directly(name: str) -> None:
        for id in dice.sample(posts, 3):
            await other.like(name, id)
            liked.add((id, name))
        await other.follow(name, "ben")

    await asyncio.gather(
        *(write_through_plaza(name) for name in names[::2]), *(write_directly(name) for name in names[1::2])
    )
    assert (await audits.run(REPAIR)).clean
    for id in posts:
        expected = {name for post, name in liked if post == id}
        assert await redis_client.smembers(k.POST_LIKES(id)) == expected
        shown = await plaza.get(Posts).get(Actor("fan0", "user"), id)
        assert (shown.likesCount, shown.isLiked) == (len(expected), "fan0" in expected)
    assert await redis_client.smembers(k.USER_FOLLOWERS("ben")) == set(names)
    assert (await plaza.get(Users).get(None, "ben")).followerCount == len(names)
    assert (await audits.run()).clean
