"""Deleting an article leaves no data."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from plaza.articles import service
from plaza.articles.jobs import timers
from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_UP,
    ARTICLES_BEING_DELETED,
    ARTICLES_BY_SCORE,
    ARTICLES_BY_TIME,
    USER_VOTES,
)
from plaza.articles.lists import ArticleLists
from plaza.articles.model import ArticlesQuery, DuplicateLink, NewArticle
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import Forbidden, NotFound
from plaza.core.keys import FENCE
from plaza.core.leases import Lease
from tests.articles.conftest import Post, remaining_keys, user
from tests.round_trips import count_round_trips


async def test_deleting_leaves_no_data(articles: Articles, lists: ArticleLists, post: Post, ana: Actor) -> None:
    article = await post(ana, "news", "go")
    await articles.vote(user("ben"), article.id, "up")
    await articles.vote(user("cem"), article.id, "down")
    for order in ("score", "time"):
        await lists.list_group(None, "news", ArticlesQuery(order=order))
    await articles.delete(ana, article.id)
    assert await remaining_keys(articles.valkey) == set()
    with pytest.raises(NotFound):
        await articles.read(None, article.id)
    with pytest.raises(NotFound):
        await articles.delete(ana, article.id)


@pytest.mark.parametrize(
    "link",
    [
        "http://link.com",
        "http://link.com?a=1#x",
        "https://link.com/#",
        "http://[::1]:81/a//b?#",
        "https://x.example/ä%20",
    ],
)
async def test_the_link_of_a_deleted_article_can_be_posted_again(articles: Articles, ana: Actor, link: str) -> None:
    first = await articles.post(ana, NewArticle("A title", link), "op1")
    await articles.delete(ana, first.id)
    assert await remaining_keys(articles.valkey) == set()
    assert (await articles.post(ana, NewArticle("A title", link), "op2")).id == first.id + 1


async def test_deleting_an_old_article_keeps_the_link_claimed_by_a_newer_one(
    articles: Articles, ana: Actor, clock: ManualClock
) -> None:
    new = NewArticle("A title", "https://example.com/")
    old = await articles.post(ana, new, "op1")
    clock.advance(days=1)
    newer = await articles.post(ana, new, "op2")
    await articles.delete(ana, old.id)
    with pytest.raises(DuplicateLink) as caught:
        await articles.post(ana, new, "op3")
    assert caught.value.extra == {"id": newer.id}


@pytest.mark.parametrize("link", ["link.com", "", None])
async def test_an_article_of_another_service_can_be_deleted_whatever_its_link(
    articles: Articles, ana: Actor, redis_client: Any, link: str | None
) -> None:
    fields = {"title": "title", "author": "user:ana", "time": "1723.123", "votes": "1"}
    await redis_client.hset(ARTICLE(123), mapping=fields if link is None else {**fields, "link": link})
    await redis_client.sadd(ARTICLE_UP(123), "user:ana")
    for key, score in ((ARTICLES_BY_TIME(), 1723.123), (ARTICLES_BY_SCORE(), 2155.123)):
        await redis_client.zadd(key, {"article:123": score})
    await articles.delete(ana, 123)
    assert await remaining_keys(articles.valkey) == set()


async def test_only_the_author_and_admins_can_delete_an_article(
    articles: Articles, post: Post, ben: Actor, admin: Actor, redis_client: Any
) -> None:
    article = await post()
    with pytest.raises(Forbidden):
        await articles.delete(ben, article.id)
    assert await redis_client.exists(ARTICLE(article.id)) == 1
    await articles.delete(admin, article.id)
    assert await redis_client.exists(ARTICLE(article.id)) == 0


async def test_an_article_with_many_votes_is_deleted_in_steps_and_finished_by_a_worker(
    articles: Articles, post: Post, ana: Actor, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    article = await post()
    await asyncio.gather(*(articles.vote(user(f"user{i}"), article.id, "up") for i in range(700)))
    monkeypatch.setattr(service, "MAX_DELETE_BATCHES", 1)
    await articles.delete(ana, article.id)
    assert await redis_client.exists(ARTICLE(article.id)) == 0
    assert await redis_client.scard(ARTICLE_UP(article.id)) == 701 - 400
    assert await redis_client.smembers(ARTICLES_BEING_DELETED()) == {str(article.id)}
    with pytest.raises(NotFound):
        await articles.vote(ana, article.id, "up")
    while await articles.finish_deleting():
        pass
    assert await redis_client.exists(USER_VOTES("user0")) == 0
    assert await remaining_keys(articles.valkey) == set()


async def test_votes_and_groups_concurrent_with_deletion_leave_no_data(
    articles: Articles, post: Post, ana: Actor
) -> None:
    async def ignore_missing(work: Any) -> None:
        with contextlib.suppress(NotFound):
            await work

    for _ in range(10):
        article = await post(ana, "news")
        work: list[Any] = [articles.vote(user(f"user{i}"), article.id, "up") for i in range(10)]
        work += [articles.group(ana, article.id, name, "in") for name in ("go", "rust")]
        work.insert(6, articles.delete(ana, article.id))
        await asyncio.gather(*map(ignore_missing, work))
        assert await remaining_keys(articles.valkey) == set()


async def test_deleting_is_one_round_trip_on_one_server_and_four_on_a_cluster(
    articles: Articles, post: Post, ana: Actor
) -> None:
    article = await post(ana, "news", "go")
    rounds = await count_round_trips(articles.valkey, articles.delete(ana, article.id))
    assert rounds == (4 if articles.valkey.clustered else 1)


async def test_an_existing_article_in_the_deletion_queue_keeps_its_votes(
    articles: Articles, post: Post, redis_client: Any
) -> None:
    article = await post()
    await redis_client.sadd(ARTICLES_BEING_DELETED(), str(article.id), "92617")
    timer = timers(articles)[0]
    fence = Lease(articles.functions, timer.name, 1)
    await redis_client.set(FENCE(timer.name), 1)
    assert await timer.run(fence) == "2 deleted articles had votes left"
    assert await redis_client.exists(ARTICLES_BEING_DELETED()) == 0
    assert await redis_client.smembers(ARTICLE_UP(article.id)) == {"user:ana"}
