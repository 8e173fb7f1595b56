"""Callers are cancelled, die half-way and lose their connections; what is written stays true."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_DOWN,
    ARTICLE_GROUPS,
    ARTICLE_UP,
    ARTICLES_BY_SCORE,
    ARTICLES_BY_TIME,
    GROUP,
    GROUPS,
    PERSON_VOTES,
)
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.outbox import OutboxEntry
from tests.articles.conftest import Post, person
from tests.servers import Cluster, Server
from tests.timeouts import within_time_limit

# On one server the facts and what follows from them are one step.
on_a_cluster = pytest.mark.parametrize("place", ["cluster"], indirect=True)


async def facts_without_effects(functions: Functions, verb: str, keys: list[str], *args: Any) -> None:
    """What a caller on a cluster leaves who dies as soon as its facts are written."""
    note = OutboxEntry.for_key("articles", keys[0])
    await functions._run(verb, [*keys, note.pending, note.slot], ["dead", "", *args])


@on_a_cluster
async def test_a_worker_settles_the_vote_of_a_caller_who_died(
    articles: Articles, functions: Functions, post: Post, redis_client: Any
) -> None:
    article = await post()
    keys = [ARTICLE(article.id), ARTICLE_UP(article.id), ARTICLE_DOWN(article.id)]
    now = f"{article.time:.3f}"
    await facts_without_effects(functions, "articles_vote", keys, article.id, "ben", "up", now, 0)
    member = f"article:{article.id}"
    assert await redis_client.zscore(ARTICLES_BY_SCORE(), member) == article.time + 432
    assert await functions.outbox.recover(abandoned_ms=0) == 1
    assert await redis_client.zscore(ARTICLES_BY_SCORE(), member) == article.time + 2 * 432
    assert await redis_client.zscore(PERSON_VOTES("ben"), member) == 1


@on_a_cluster
async def test_a_worker_finishes_the_post_of_a_caller_who_died(functions: Functions, redis_client: Any) -> None:
    keys = [ARTICLE(1), ARTICLE_UP(1), ARTICLE_DOWN(1), ARTICLE_GROUPS(1)]
    facts = ["A title", "https://example.com/", "ana", "1700000000.000", "news"]
    await facts_without_effects(functions, "articles_create", keys, 1, *facts)
    assert await redis_client.zcard(ARTICLES_BY_TIME()) == 0
    await functions.outbox.recover(abandoned_ms=0)
    assert await redis_client.zrange(ARTICLES_BY_TIME(), 0, -1) == ["article:1"]
    assert await redis_client.smembers(GROUP("news")) == {"article:1"}
    assert await redis_client.zscore(GROUPS(), "news") == 1


async def test_a_cancelled_vote_leaves_nothing_half_done(
    articles: Articles, functions: Functions, post: Post, redis_client: Any
) -> None:
    article = await post()
    for i in range(30):
        vote = asyncio.ensure_future(articles.vote(person(f"user{i}"), article.id, "up"))
        for _ in range(i // 3):
            await asyncio.sleep(0)
        vote.cancel()
        await asyncio.gather(vote, return_exceptions=True)
    await articles.vote(person("last"), article.id, "up")
    await functions.outbox.drain()
    if functions.valkey.clustered:
        await functions.outbox.recover(abandoned_ms=0)
    await agree(redis_client, [article.id])


async def agree(redis_client: Any, ids: list[int]) -> None:
    for id in ids:
        ups, downs = await redis_client.scard(ARTICLE_UP(id)), await redis_client.scard(ARTICLE_DOWN(id))
        posted, votes = await redis_client.hmget(ARTICLE(id), "time", "votes")
        assert int(votes) == ups - downs
        assert await redis_client.zscore(ARTICLES_BY_SCORE(), f"article:{id}") == float(posted) + 432 * (ups - downs)


def cut_connections(place: Server | Cluster) -> None:
    for node in place.nodes if isinstance(place, Cluster) else [place]:
        with node.redis_client() as client:
            client.client_kill_filter(_type="normal", skipme=True)


async def test_lost_connections_cost_requests_and_never_the_truth(
    place: Server | Cluster, articles: Articles, functions: Functions, ana: Actor, redis_client: Any
) -> None:
    dice = random.Random(7)
    ids = [
        (await articles.post(ana, NewArticle("A title", f"https://example.com/{i}", ["news"]), f"op{i}")).id
        for i in range(5)
    ]
    failed, over = 0, False

    async def voter(actor: Actor) -> None:
        nonlocal failed
        while not over:
            try:
                await articles.vote(actor, dice.choice(ids), dice.choice(["up", "down", None]))
            except Unavailable:
                failed += 1

    voting = [asyncio.ensure_future(voter(person(f"user{i}"))) for i in range(40)]
    cuts = 0
    async with within_time_limit():
        while cuts < 3 or not failed:  # one may come when nobody is asking anything
            await asyncio.sleep(0.1)
            await asyncio.to_thread(cut_connections, place)
            cuts += 1
    over = True
    await asyncio.gather(*voting)
    await functions.outbox.drain()
    if functions.valkey.clustered:
        await functions.outbox.recover(abandoned_ms=0)
    await agree(redis_client, ids)
