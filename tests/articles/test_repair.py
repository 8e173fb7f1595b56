"""Repairing an article recomputes what follows from its source data."""

from __future__ import annotations

from typing import Any

from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_DOWN,
    ARTICLE_GROUPS,
    ARTICLE_UP,
    ARTICLES_LAST,
    GROUP,
    GROUPS,
    RANKINGS,
    USER_ARTICLES,
)
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from tests.articles.conftest import Post, remaining_keys


async def stored_state(redis_client: Any, id: int) -> dict[str, Any]:
    """Everything stored about an article: its own keys and its entries elsewhere."""
    member = f"article:{id}"
    return {
        "article": await redis_client.hgetall(ARTICLE(id)),
        "up": await redis_client.smembers(ARTICLE_UP(id)),
        "down": await redis_client.smembers(ARTICLE_DOWN(id)),
        **{order: await redis_client.zscore(key(), member) for order, key in RANKINGS.items()},
        "group": await redis_client.smembers(GROUP("news")),
        "size": await redis_client.zscore(GROUPS(), "news"),
        "posted": await redis_client.zscore(USER_ARTICLES("ana"), member),
    }


async def repair(articles: Articles, id: int) -> bool:
    """Call the repair commands of an article and of its votes; returns whether the article exists."""
    await articles.functions.run("articles_repair_votes", [ARTICLE(id)], articles.clock.now_ms(), id)
    return bool(await articles.functions.run("articles_repair_article", [ARTICLE(id)], articles.clock.now_ms(), id))


async def test_repair_restores_everything_derived_from_source_data(
    articles: Articles, post: Post, ana: Actor, ben: Actor, redis_client: Any
) -> None:
    article = await post(ana, "news")
    await articles.delete(ana, (await post(ana)).id)  # its id is never used again
    await articles.vote(ben, article.id, "up")
    expected = await stored_state(redis_client, article.id)
    member = f"article:{article.id}"
    for key in RANKINGS.values():
        await redis_client.zadd(key(), {member: 1.5})
    await redis_client.sadd(ARTICLE_DOWN(article.id), "user:ben")  # in both sets: an upvoter
    await redis_client.hset(ARTICLE(article.id), "votes", "77")
    await redis_client.zrem(GROUPS(), "news")
    await redis_client.zrem(USER_ARTICLES("ana"), member)
    assert await repair(articles, article.id)
    assert await stored_state(redis_client, article.id) == expected
    assert await redis_client.get(ARTICLES_LAST()) == str(article.id + 1)
    await redis_client.delete(ARTICLES_LAST())
    assert await repair(articles, article.id)
    assert await redis_client.get(ARTICLES_LAST()) == str(article.id)
    assert await repair(articles, article.id)
    assert await stored_state(redis_client, article.id) == expected


async def test_repair_removes_the_rest_of_a_deleted_article(
    articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    article = await post(ana, "news")
    await articles.delete(ana, article.id)
    member = f"article:{article.id}"
    for key in RANKINGS.values():
        await redis_client.zadd(key(), {member: 1.5})
    await redis_client.sadd(ARTICLE_UP(article.id), "user:ben")
    await redis_client.sadd(ARTICLE_GROUPS(article.id), "news")
    await redis_client.sadd(GROUP("news"), member)
    assert not await repair(articles, article.id)
    assert await remaining_keys(articles.valkey) == set()
