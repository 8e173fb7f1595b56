"""Articles as in chapter 1 of *Redis in Action*, with redis-py.

`BookArticles` is the book's code for Python 3 and the current redis-py. `AsyncBookArticles` is the same with asyncio.
"""

from __future__ import annotations

import time
from typing import Any

ONE_WEEK_IN_SECONDS = 7 * 86_400
VOTE_SCORE = 432
ARTICLES_PER_PAGE = 25


class BookArticles:
    """The book's functions, on redis-py's blocking client."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def article_vote(self, user: str, article: str) -> None:
        conn = self.conn
        oldest_open = time.time() - ONE_WEEK_IN_SECONDS
        if conn.zscore("time:", article) < oldest_open:
            return
        article_id = article.partition(":")[-1]
        if conn.sadd("voted:" + article_id, user):
            conn.zincrby("score:", VOTE_SCORE, article)
            conn.hincrby(article, "votes", 1)

    def post_article(self, user: str, title: str, link: str) -> str:
        conn = self.conn
        article_id = str(conn.incr("article:"))
        voted = "voted:" + article_id
        conn.sadd(voted, user)
        conn.expire(voted, ONE_WEEK_IN_SECONDS)
        now = time.time()
        article = "article:" + article_id
        conn.hset(article, mapping={"title": title, "link": link, "poster": user, "time": now, "votes": 1})
        conn.zadd("score:", {article: now + VOTE_SCORE})
        conn.zadd("time:", {article: now})
        return article_id

    def get_articles(self, page: int, order: str = "score:") -> list[dict[str, str]]:
        start = (page - 1) * ARTICLES_PER_PAGE
        articles = []
        for id in self.conn.zrevrange(order, start, start + ARTICLES_PER_PAGE - 1):
            article = self.conn.hgetall(id)
            article["id"] = id
            articles.append(article)
        return articles

    def get_group_articles(self, group: str, page: int, order: str = "score:") -> list[dict[str, str]]:
        key = order + group
        if not self.conn.exists(key):
            self.conn.zinterstore(key, ["group:" + group, order], aggregate="max")
            self.conn.expire(key, 60)
        return self.get_articles(page, key)


class AsyncBookArticles:
    """The book's functions, on redis-py's asyncio client."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    async def article_vote(self, user: str, article: str) -> None:
        conn = self.conn
        oldest_open = time.time() - ONE_WEEK_IN_SECONDS
        if await conn.zscore("time:", article) < oldest_open:
            return
        article_id = article.partition(":")[-1]
        if await conn.sadd("voted:" + article_id, user):
            await conn.zincrby("score:", VOTE_SCORE, article)
            await conn.hincrby(article, "votes", 1)

    async def post_article(self, user: str, title: str, link: str) -> str:
        conn = self.conn
        article_id = str(await conn.incr("article:"))
        voted = "voted:" + article_id
        await conn.sadd(voted, user)
        await conn.expire(voted, ONE_WEEK_IN_SECONDS)
        now = time.time()
        article = "article:" + article_id
        await conn.hset(article, mapping={"title": title, "link": link, "poster": user, "time": now, "votes": 1})
        await conn.zadd("score:", {article: now + VOTE_SCORE})
        await conn.zadd("time:", {article: now})
        return article_id

    async def get_articles(self, page: int, order: str = "score:") -> list[dict[str, str]]:
        start = (page - 1) * ARTICLES_PER_PAGE
        articles = []
        for id in await self.conn.zrevrange(order, start, start + ARTICLES_PER_PAGE - 1):
            article = await self.conn.hgetall(id)
            article["id"] = id
            articles.append(article)
        return articles

    async def get_group_articles(self, group: str, page: int, order: str = "score:") -> list[dict[str, str]]:
        key = order + group
        if not await self.conn.exists(key):
            await self.conn.zinterstore(key, ["group:" + group, order], aggregate="max")
            await self.conn.expire(key, 60)
        return await self.get_articles(page, key)
