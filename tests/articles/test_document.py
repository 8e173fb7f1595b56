"""Plaza and a service that follows the document share the documented keys.

The service uses plain commands, one at a time, as the document and *Redis in Action* have them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza
from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_DOWN,
    ARTICLE_UP,
    ARTICLES_BY_SCORE,
    ARTICLES_BY_TIME,
    ARTICLES_LAST,
    GROUP,
    GROUP_BY_SCORE,
)
from plaza.keyspace.audit import REPAIR, Audits, recheck
from tests.http_servers import all_of_plaza, client_of
from tests.servers import Cluster, Server

VOTE_SCORE = 432
# Long enough for thousands of operations of both services.
INTERLEAVE_SECONDS = 3.0


class DocumentService:
    """Another service: articles, votes and groups by plain commands. It remembers what it wrote."""

    def __init__(self, redis_client: Any) -> None:
        self.redis = redis_client
        self.articles: dict[int, dict[str, str]] = {}
        self.groups: dict[str, set[str]] = {}

    async def post(self, *groups: str) -> int:
        id = int(await self.redis.incr(ARTICLES_LAST()))
        now, member = time.time(), f"article:{id}"
        author = f"user:{id * 7}"
        fields = {"title": f"title {id}", "link": "link.com", "author": author, "time": str(now), "votes": "1"}
        await self.redis.sadd(ARTICLE_UP(id), author)
        await self.redis.hset(ARTICLE(id), mapping=fields)
        await self.redis.zadd(ARTICLES_BY_SCORE(), {member: now + VOTE_SCORE})
        await self.redis.zadd(ARTICLES_BY_TIME(), {member: now})
        for group in groups:
            await self.add_to_group(id, group)
        self.articles[id] = fields
        return id

    async def add_to_group(self, id: int, group: str) -> None:
        await self.redis.sadd(GROUP(group), f"article:{id}")
        self.groups.setdefault(group, set()).add(f"article:{id}")

    async def vote(self, id: int, user: str, *, up: bool = True) -> None:
        """Vote, or remove the vote if the user has voted already."""
        votes, sign = (ARTICLE_UP(id), 1) if up else (ARTICLE_DOWN(id), -1)
        if not await self.redis.sadd(votes, user):
            await self.redis.srem(votes, user)
            sign = -sign
        await self.redis.zincrby(ARTICLES_BY_SCORE(), VOTE_SCORE * sign, f"article:{id}")
        await self.redis.hincrby(ARTICLE(id), "votes", sign)

    async def rank_group(self, group: str) -> None:
        """Write `score:<group>` for a minute, as ZINTERSTORE would on one server."""
        members = await self.redis.smembers(GROUP(group))
        scores = {member: await self.redis.zscore(ARTICLES_BY_SCORE(), member) for member in members}
        await self.redis.zadd(GROUP_BY_SCORE(group), scores)
        await self.redis.expire(GROUP_BY_SCORE(group), 60)


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plaza]:
    monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recheck, "SHORT_PAUSE_SECONDS", 0.001)
    async with all_of_plaza(place, tmp_path) as plaza:
        yield plaza


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        yield client


@pytest.fixture
def service(plaza: Plaza, redis_client: Any) -> DocumentService:
    return DocumentService(redis_client)


async def documented_keys(redis_client: Any, ids: range) -> dict[str, Any]:
    """All documented keys of articles, read with a plain client."""
    values: dict[str, Any] = {"last": await redis_client.get(ARTICLES_LAST())}
    for key in (ARTICLES_BY_SCORE(), ARTICLES_BY_TIME()):
        values[key] = dict(await redis_client.zrange(key, 0, -1, withscores=True))
    for id in ids:
        values[ARTICLE(id)] = await redis_client.hgetall(ARTICLE(id))
        for key in (ARTICLE_UP(id), ARTICLE_DOWN(id)):
            values[key] = await redis_client.smembers(key)
    for group in ("all", "news", "Rust", "mixed"):
        values[GROUP(group)] = await redis_client.smembers(GROUP(group))
    return values


async def test_everything_that_the_document_allows_is_shown_and_kept(
    plaza: Plaza, http: httpx.AsyncClient, service: DocumentService, redis_client: Any
) -> None:
    for number in range(12):
        id = await service.post("all", *(["news", "Rust"] if number % 3 == 0 else []))
        for voter in range(number):
            await service.vote(id, f"user:{9000 + voter}", up=voter % 4 != 0)
    await service.rank_group("news")
    ids = range(1, 13)
    before = await documented_keys(redis_client, ids)

    for order, key in (("score", ARTICLES_BY_SCORE()), ("time", ARTICLES_BY_TIME())):
        page = (await http.get(f"/articles?order={order}&limit=100")).json()["articles"]
        assert [f"article:{article['id']}" for article in page] == await redis_client.zrange(key, 0, -1, desc=True)
    for id in ids:
        shown, stored = (await http.get(f"/articles/{id}")).json(), before[ARTICLE(id)]
        assert {name: str(shown[name]) for name in ("title", "link", "author")} == {
            name: stored[name] for name in ("title", "link", "author")
        }
        assert (shown["votes"], shown["time"]) == (int(stored["votes"]), float(stored["time"]))
        assert shown["score"] == pytest.approx(before[ARTICLES_BY_SCORE()][f"article:{id}"])

    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.left
    assert await documented_keys(redis_client, ids) == before
    for group in ("all", "news", "Rust"):
        page = (await http.get(f"/groups/{group}/articles?limit=100")).json()["articles"]
        assert {f"article:{article['id']}" for article in page} == before[GROUP(group)]
        assert all(group in article["groups"] for article in page)
    sizes = {group["id"]: group["size"] for group in (await http.get("/groups")).json()["groups"]}
    assert sizes == {"all": 12, "news": 4, "Rust": 4}
    assert await documented_keys(redis_client, ids) == before
    assert (await plaza.get(Audits).run()).clean


@pytest.mark.parametrize("place", ["server"], indirect=True)  # on a cluster Plaza sets scores, see docs/articles.md
async def test_operations_of_both_services_interleave_without_a_loss(
    plaza: Plaza, http: httpx.AsyncClient, service: DocumentService, redis_client: Any
) -> None:
    rng, numbers = random.Random(3), itertools.count()
    for _ in range(5):
        await service.post()
    posted: set[int] = set(service.articles)
    grouped: set[str] = set()

    def headers(name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {plaza.core.auth.issue(name, 'admin')}"}

    async def plaza_operation(name: str) -> None:
        id = rng.randint(1, 5)
        choice = rng.random()
        if choice < 0.7:
            direction = rng.choice(["up", "down"])
            response = await http.put(f"/articles/{id}/vote", json={"direction": direction}, headers=headers(name))
        elif choice < 0.8:
            response = await http.delete(f"/articles/{id}/vote", headers=headers(name))
        elif choice < 0.9:
            response = await http.put(f"/articles/{id}/groups/mixed", headers=headers(name))
            grouped.add(f"article:{id}")
        else:
            body = {"title": "From Plaza", "link": f"https://example.com/{next(numbers)}", "groups": ["news"]}
            response = await http.post("/articles", json=body, headers=headers(name))
            posted.add(response.json()["id"])
            grouped.add(f"article:{response.json()['id']}")
        assert response.is_success, response.text
        await http.get("/groups/mixed/articles")

    async def service_operation(name: str) -> None:
        if rng.random() < 0.9:
            up = rng.random() < 0.7
            await service.vote(rng.randint(1, 5), f"user:{name}{'' if up else 1}", up=up)  # no user votes both ways
        else:
            posted.add(await service.post("mixed"))

    async def repeat(operation: Callable[[str], Awaitable[None]], name: str) -> None:
        while time.monotonic() < until:
            await operation(name)

    until = time.monotonic() + INTERLEAVE_SECONDS
    await asyncio.gather(
        *(repeat(plaza_operation, f"plaza{n}") for n in range(4)),
        *(repeat(service_operation, f"8{n:03}") for n in range(4)),
    )

    last = int(await redis_client.get(ARTICLES_LAST()))
    assert posted == set(range(1, last + 1))
    state = await documented_keys(redis_client, range(1, last + 1))
    for id in posted:
        ups, downs = state[ARTICLE_UP(id)], state[ARTICLE_DOWN(id)]
        article, member = state[ARTICLE(id)], f"article:{id}"
        assert int(article["votes"]) == len(ups) - len(downs)
        expected = float(article["time"]) + VOTE_SCORE * (len(ups) - len(downs))
        assert state[ARTICLES_BY_SCORE()][member] == pytest.approx(expected, abs=1e-3)
        assert state[ARTICLES_BY_TIME()][member] == float(article["time"])
    assert service.groups["mixed"] <= state[GROUP("mixed")]
    assert grouped <= state[GROUP("mixed")] | state[GROUP("news")]
    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.left
    assert await documented_keys(redis_client, range(1, last + 1)) == state
