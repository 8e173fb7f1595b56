"""Beside people who do everything at once, the audit raises no alarm, and a repair takes nothing back."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from plaza.app import Plaza
from plaza.articles.keys import ARTICLE, ARTICLE_UP, ARTICLES_BY_SCORE, PERSON_VOTES
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.keyspace.audit import REPAIR, Audits, throttle
from plaza.social.keys import POST, POST_LIKES, USER_BOOKMARKED, USER_LIKED
from plaza.social.posts import Posts
from tests.keyspace.audit.sample_community import NAMES, Town
from tests.keyspace.audit.write_storm import storm

# One audit after the other while the storm lasts, each a few looks at every key: as in life, where it leaves the server
# to others most of the time, and without a rest, when it meets the most that is half done.
SHARES = (throttle.SHARE, throttle.SHARE, 1.0, 1.0, 1.0, 1.0)


async def test_an_audit_in_a_storm_finds_nothing(
    plaza: Plaza, audits: Audits, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspicions = 0
    async with storm(plaza, town) as blowing:
        for share in SHARES:
            monkeypatch.setattr(throttle, "SHARE", share)
            report = await audits.run()
            assert report.clean, [finding for group in report.groups for finding in group.examples]
            suspicions += report.suspicions
    assert blowing.done > 100
    assert suspicions, "nothing was ever seen half done: the storm was too weak to show anything"
    assert (await audits.run()).clean


class Fans:
    """People who like, bookmark and vote, and remember what they were told was done."""

    def __init__(self, plaza: Plaza, town: Town) -> None:
        self.posts, self.articles, self.town = plaza.get(Posts), plaza.get(Articles), town
        self.liked: set[tuple[str, str]] = set()
        self.marked: set[tuple[str, str]] = set()
        self.voted: set[tuple[int, str]] = set()

    async def cheer(self, name: str) -> None:
        who = Actor(name, "user")
        for post in self.town.posts[:3]:
            await self.posts.like(who, post)
            self.liked.add((post, name))
            await self.posts.bookmark(who, post)
            self.marked.add((post, name))
        for article in self.town.articles:
            await self.articles.vote(who, article, "up")
            self.voted.add((article, name))


async def test_a_repair_among_writers_loses_none_of_their_writes(
    plaza: Plaza, audits: Audits, town: Town, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "SHARE", 1.0)
    fans, dice, over = Fans(plaza, town), random.Random(1), asyncio.Event()

    async def come() -> None:
        for i in range(60):
            await asyncio.gather(*(fans.cheer(f"fan{i}-{j}") for j in range(4)))

    async def vandal() -> None:
        """Breaks, all the time, what follows from the facts, and never a fact."""
        while not over.is_set():
            post, article = dice.choice(town.posts[:3]), dice.choice(town.articles)
            name = dice.choice(NAMES)
            await redis_client.hincrby(POST(post), "likesCount", 7)
            await redis_client.zrem(USER_LIKED(name), post)
            await redis_client.hincrby(ARTICLE(article), "votes", -3)
            await redis_client.zincrby(ARTICLES_BY_SCORE(), 5, f"article:{article}")
            await redis_client.zrem(PERSON_VOTES(name), f"article:{article}")
            await asyncio.sleep(0.01)

    async def repair() -> int:
        repaired = 0
        while not over.is_set():
            repaired += (await audits.run(REPAIR)).repaired
        return repaired

    breaking, mending = asyncio.create_task(vandal()), asyncio.create_task(repair())
    await come()
    over.set()
    await breaking
    assert await mending > 0
    assert (await audits.run(REPAIR)).clean
    for post, name in fans.liked:
        assert await redis_client.sismember(POST_LIKES(post), name)
    for post, name in fans.marked:
        assert await redis_client.zscore(USER_BOOKMARKED(name), post) is not None
    for article, name in fans.voted:
        assert await redis_client.sismember(ARTICLE_UP(article), f"user:{name}")
    assert (await audits.run()).clean
