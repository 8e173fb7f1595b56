"""Data stays consistent when callers are cancelled, die half-way or lose their connections."""

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
    USER_VOTES,
)
from plaza.articles.model import NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.outbox import OutboxEntry
from tests.articles.conftest import Post, user
from tests.servers import Cluster, Server
from tests.timeouts import within_time_limit

# On one server source data and projections change in one step.
on_a_cluster = pytest.mark.parametrize("place", ["cluster"], indirect=True)


async def run_without_projections(functions: Functions, command: str, keys: list[str], *args: Any) -> None:
    """Run a command as a caller on a cluster that dies after writing source data."""
    entry = OutboxEntry.for_key("articles", keys[0])
    await functions._run(command, [*keys, entry.pending, entry.slot], ["dead", "", *args])


@on_a_cluster
async def test_a_worker_settles_the_vote_of_a_dead_caller(
    articles: Articles, functions: Functions, post: Post, redis_client: Any
) -> None:
    article = await post()
    keys = [ARTICLE(article.id), ARTICLE_UP(article.id), ARTICLE_DOWN(article.id)]
    now = f"{article.time:.3f}"
    await run_without_projections(functions, "articles_vote", keys, article.id, "ben", "up", now, 0, "")
    member = f"article:{article.id}"
    assert await redis_client.zscore(ARTICLES_BY_SCORE(), member) == article.time + 432
    assert await functions.outbox_recovery.recover(abandoned_ms=0) == 1
    assert await redis_client.zscore(ARTICLES_BY_SCORE(), member) == article.time + 2 * 432
    assert await redis_client.zscore(USER_VOTES("ben"), member) == 1


@on_a_cluster
async def test_a_worker_completes_the_post_of_a_dead_caller(functions: Functions, redis_client: Any) -> None:
    keys = [ARTICLE(1), ARTICLE_UP(1), ARTICLE_DOWN(1), ARTICLE_GROUPS(1)]
    fields = ["A title", "https://example.com/", "ana", "1700000000.000", "", "news"]
    await run_without_projections(functions, "articles_create", keys, 1, *fields)
    assert await redis_client.zcard(ARTICLES_BY_TIME()) == 0
    await functions.outbox_recovery.recover(abandoned_ms=0)
    assert await redis_client.zrange(ARTICLES_BY_TIME(), 0, -1) == ["article:1"]
    assert await redis_client.smembers(GROUP("news")) == {"article:1"}
    assert await redis_client.zscore(GROUPS(), "news") == 1


async def test_a_cancelled_vote_is_done_completely_or_not_at_all(
    articles: Articles, functions: Functions, post: Post, redis_client: Any
) -> None:
    article = await post()
    for i in range(30):
        vote = asyncio.ensure_future(articles.vote(user(f"user{i}"), article.id, "up"))
        for _ in range(i // 3):
            await asyncio.sleep(0)
        vote.cancel()
        await asyncio.gather(vote, return_exceptions=True)
    await articles.vote(user("last"), article.id, "up")
    await functions.outbox.drain()
    if functions.valkey.clustered:
        await functions.outbox_recovery.recover(abandoned_ms=0)
    await assert_scores_match_votes(redis_client, [article.id])


async def assert_scores_match_votes(redis_client: Any, ids: list[int]) -> None:
    for id in ids:
        ups, downs = await redis_client.scard(ARTICLE_UP(id)), await redis_client.scard(ARTICLE_DOWN(id))
        posted, votes = await redis_client.hmget(ARTICLE(id), "time", "votes")
        assert int(votes) == ups - downs
        assert await redis_client.zscore(ARTICLES_BY_SCORE(), f"article:{id}") == float(posted) + 432 * (ups - downs)


def kill_connections(place: Server | Cluster) -> None:
    for node in place.nodes if isinstance(place, Cluster) else [place]:
        with node.redis_client() as client:
            client.client_kill_filter(_type="normal", skipme=True)


async def test_lost_connections_fail_requests_but_keep_scores_correct(
    place: Server | Cluster, articles: Articles, functions: Functions, ana: Actor, redis_client: Any
) -> None:
    rng = random.Random(7)
    ids = [
        (await articles.post(ana, NewArticle("A title", f"https://example.com/{i}", ["news"]), f"op{i}")).id
        for i in range(5)
    ]
    failed, stopped = 0, False

    async def voter(actor: Actor) -> None:
        nonlocal failed
        while not stopped:
            try:
                await articles.vote(actor, rng.choice(ids), rng.choice(["up", "down", None]))
            except Unavailable:
                failed += 1

    voting = [asyncio.ensure_future(voter(user(f"user{i}"))) for i in range(40)]
    kills = 0
    async with within_time_limit():
        while kills < 3 or not failed:  # a kill may hit while no request runs
            await asyncio.sleep(0.1)
            await asyncio.to_thread(kill_connections, place)
            kills += 1
    stopped = True
    await asyncio.gather(*voting)
    await functions.outbox.drain()
    if functions.valkey.clustered:
        await functions.outbox_recovery.recover(abandoned_ms=0)
    await assert_scores_match_votes(redis_client, ids)
