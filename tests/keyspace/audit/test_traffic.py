"""During concurrent writes the audit reports nothing, and a repair loses no write."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from plaza.app import Plaza
from plaza.articles.keys import ARTICLE, ARTICLE_UP, ARTICLES_BY_SCORE, USER_VOTES
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.invariants import NOT_COMPARED
from plaza.keyspace.audit import REPAIR, Audits, auditor, throttle
from plaza.social.engagements import Engagements
from plaza.social.keys import POST, POST_LIKES, USER_BOOKMARKED, USER_LIKED
from tests.keyspace.audit.sample_community import NAMES, SampleCommunity
from tests.keyspace.audit.write_storm import storm

# Several audits run during the storm: two with the usual throttle, and four without it, which meet the most
# operations in progress.
SHARES = (throttle.SHARE, throttle.SHARE, 1.0, 1.0, 1.0, 1.0)


async def test_an_audit_during_writes_reports_nothing(
    plaza: Plaza, audits: Audits, community: SampleCommunity, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspicions = 0
    async with storm(plaza, community) as running:
        for share in SHARES:
            monkeypatch.setattr(auditor, "SHARE", share)
            report = await audits.run()
            assert report.clean, [finding for group in report.groups for finding in group.examples]
            suspicions += report.suspicions
    assert running.done > 100
    assert suspicions, "no suspicion at all: too few concurrent writes to prove anything"
    last = await audits.run()
    found = [finding for group in last.groups for finding in group.examples]
    assert {finding.rule for finding in found} <= {NOT_COMPARED}, found  # its worker has stopped


class Fans:
    """Users who like, bookmark and vote, and record what was acknowledged."""

    def __init__(self, plaza: Plaza, community: SampleCommunity) -> None:
        self.engagements, self.articles, self.community = plaza.get(Engagements), plaza.get(Articles), community
        self.liked: set[tuple[str, str]] = set()
        self.bookmarked: set[tuple[str, str]] = set()
        self.voted: set[tuple[int, str]] = set()

    async def like_all(self, name: str) -> None:
        user = Actor(name, "user")
        for post in self.community.posts[:3]:
            await self.engagements.like(user, post)
            self.liked.add((post, name))
            await self.engagements.bookmark(user, post)
            self.bookmarked.add((post, name))
        for article in self.community.articles:
            await self.articles.vote(user, article, "up")
            self.voted.add((article, name))


async def test_a_repair_during_writes_loses_no_write(
    plaza: Plaza, audits: Audits, community: SampleCommunity, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditor, "SHARE", 1.0)
    fans, rng, stop = Fans(plaza, community), random.Random(1), asyncio.Event()

    async def write() -> None:
        for i in range(60):
            await asyncio.gather(*(fans.like_all(f"fan{i}-{j}") for j in range(4)))

    async def corrupt() -> None:
        """Corrupt derived data repeatedly, but never source data."""
        while not stop.is_set():
            post, article = rng.choice(community.posts[:3]), rng.choice(community.articles)
            name = rng.choice(NAMES)
            await redis_client.hincrby(POST(post), "likesCount", 7)
            await redis_client.zrem(USER_LIKED(name), post)
            await redis_client.hincrby(ARTICLE(article), "votes", -3)
            await redis_client.zincrby(ARTICLES_BY_SCORE(), 5, f"article:{article}")
            await redis_client.zrem(USER_VOTES(name), f"article:{article}")
            await asyncio.sleep(0.01)

    async def repair() -> int:
        repaired = 0
        while not stop.is_set():
            repaired += (await audits.run(REPAIR)).repaired
        return repaired

    corrupting, repairing = asyncio.create_task(corrupt()), asyncio.create_task(repair())
    await write()
    stop.set()
    await corrupting
    assert await repairing > 0
    assert (await audits.run(REPAIR)).clean
    for post, name in fans.liked:
        assert await redis_client.sismember(POST_LIKES(post), name)
    for post, name in fans.bookmarked:
        assert await redis_client.zscore(USER_BOOKMARKED(name), post) is not None
    for article, name in fans.voted:
        assert await redis_client.sismember(ARTICLE_UP(article), f"user:{name}")
    assert (await audits.run()).clean
