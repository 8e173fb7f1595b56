"""What another writer has broken follows from the facts again."""

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
    PERSON_ARTICLES,
    RANKINGS,
)
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from tests.articles.conftest import Post, traces


async def standing(stranger: Any, id: int) -> dict[str, Any]:
    """All that is said of an article, by itself and elsewhere."""
    member = f"article:{id}"
    return {
        "article": await stranger.hgetall(ARTICLE(id)),
        "up": await stranger.smembers(ARTICLE_UP(id)),
        "down": await stranger.smembers(ARTICLE_DOWN(id)),
        **{order: await stranger.zscore(key(), member) for order, key in RANKINGS.items()},
        "group": await stranger.smembers(GROUP("news")),
        "size": await stranger.zscore(GROUPS(), "news"),
        "posted": await stranger.zscore(PERSON_ARTICLES("ana"), member),
    }


async def repair(articles: Articles, id: int) -> bool:
    """What a repair calls. Whether there is such an article."""
    return bool(await articles.functions.run("articles_repair_article", [ARTICLE(id)], articles.clock.now_ms(), id))


async def test_mending_restores_whatever_follows_from_the_facts(
    articles: Articles, post: Post, ana: Actor, ben: Actor, stranger: Any
) -> None:
    article = await post(ana, "news")
    await articles.delete(ana, (await post(ana)).id)  # its id is never given again
    await articles.vote(ben, article.id, "up")
    true = await standing(stranger, article.id)
    member = f"article:{article.id}"
    for key in RANKINGS.values():
        await stranger.zadd(key(), {member: 1.5})
    await stranger.sadd(ARTICLE_DOWN(article.id), "user:ben")  # in both: an upvoter
    await stranger.hset(ARTICLE(article.id), "votes", "77")
    await stranger.srem(GROUP("news"), member)
    await stranger.zrem(GROUPS(), "news")
    await stranger.zrem(PERSON_ARTICLES("ana"), member)
    assert await repair(articles, article.id)
    assert await standing(stranger, article.id) == true
    assert await stranger.get(ARTICLES_LAST()) == str(article.id + 1)
    await stranger.delete(ARTICLES_LAST())
    assert await repair(articles, article.id)
    assert await stranger.get(ARTICLES_LAST()) == str(article.id)
    assert await repair(articles, article.id)
    assert await standing(stranger, article.id) == true


async def test_mending_removes_what_is_left_of_an_article_that_is_gone(
    articles: Articles, post: Post, ana: Actor, stranger: Any
) -> None:
    article = await post(ana, "news")
    await articles.delete(ana, article.id)
    member = f"article:{article.id}"
    for key in RANKINGS.values():
        await stranger.zadd(key(), {member: 1.5})
    await stranger.sadd(ARTICLE_UP(article.id), "user:ben")
    await stranger.sadd(ARTICLE_GROUPS(article.id), "news")
    await stranger.sadd(GROUP("news"), member)
    assert not await repair(articles, article.id)
    assert await traces(articles.valkey) == set()
