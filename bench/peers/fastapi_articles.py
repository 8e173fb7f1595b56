"""Articles the usual way: FastAPI and redis-py, pipelined; and the book's algorithm below `/book`.

Written on the same keys as Plaza: what can go in one pipeline does. It does less: no unique links, no groups in the
answer, lists are paged by offset, and a race can count a vote twice.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import fastapi
import pydantic

from bench.peers.book_articles import AsyncBookArticles

VOTE_SCORE = 432
OPEN_SECONDS = 7 * 86_400


class NewArticle(pydantic.BaseModel, extra="forbid"):
    title: Annotated[str, pydantic.Field(min_length=1, max_length=300)]
    link: pydantic.HttpUrl
    groups: Annotated[list[str], pydantic.Field(max_length=10)] = []


class Article(pydantic.BaseModel):
    id: int
    title: str
    link: str
    author: str
    time: float
    votes: int
    score: float
    vote: Literal["up", "down"] | None
    commentsCount: int = 0


class Pagination(pydantic.BaseModel):
    limit: int
    count: int
    next_cursor: str | None


class ArticlePage(pydantic.BaseModel):
    articles: list[Article]
    pagination: Pagination


class Vote(pydantic.BaseModel, extra="forbid"):
    direction: Literal["up", "down"]


def routes(db: Any, caller: Any, optional_caller: Any) -> fastapi.APIRouter:
    router = fastapi.APIRouter()
    known, maybe = fastapi.Depends(caller), fastapi.Depends(optional_caller)

    @router.get("/articles")
    async def list_articles(
        order: Literal["score", "time"] = "score", limit: int = 25, cursor: int = 0, name: str | None = maybe
    ) -> ArticlePage:
        found = await db.zrevrange(f"{order}:", cursor, cursor + limit - 1)
        async with db.pipeline(transaction=False) as pipe:
            pipe.zmscore("score:", found)
            for article in found:
                pipe.hgetall(article)
            if name is not None:
                for article in found:
                    number = article.partition(":")[2]
                    pipe.sismember(f"upvoted:{number}", f"user:{name}").sismember(f"downvoted:{number}", f"user:{name}")
            scores, *rows = await pipe.execute()
        flags = rows[len(found) :]
        articles = []
        for i, (article, score) in enumerate(zip(found, scores, strict=True)):
            up, down = flags[2 * i : 2 * i + 2] or (0, 0)
            vote = "up" if up else "down" if down else None
            articles.append(Article(**{**rows[i], "id": article.partition(":")[2], "score": score, "vote": vote}))
        more = str(cursor + limit) if len(found) == limit else None
        return ArticlePage(articles=articles, pagination=Pagination(limit=limit, count=len(articles), next_cursor=more))

    @router.put("/articles/{id}/vote")
    async def vote(id: int, body: Vote, name: str = known) -> Article:
        user, article = f"user:{name}", f"article:{id}"
        mine, others = ("upvoted", "downvoted") if body.direction == "up" else ("downvoted", "upvoted")
        async with db.pipeline(transaction=False) as pipe:
            pipe.hgetall(article).zscore("score:", article)
            pipe.sismember(f"{mine}:{id}", user).sismember(f"{others}:{id}", user)
            fields, score, already, switched = await pipe.execute()
        if not fields:
            raise fastapi.HTTPException(404)
        if time.time() - float(fields["time"]) > OPEN_SECONDS:
            raise fastapi.HTTPException(409)
        votes = int(fields["votes"])
        if not already:
            step = (2 if switched else 1) * (1 if body.direction == "up" else -1)
            async with db.pipeline() as pipe:
                pipe.srem(f"{others}:{id}", user).sadd(f"{mine}:{id}", user)
                pipe.zincrby("score:", step * VOTE_SCORE, article).hincrby(article, "votes", step)
                _, _, score, votes = await pipe.execute()
        return Article(**{**fields, "id": id, "votes": votes, "score": score, "vote": body.direction})

    @router.post("/articles", status_code=201)
    async def post(body: NewArticle, name: str = known) -> Article:
        id, now = await db.incr("article:"), time.time()
        article, score = f"article:{id}", now + VOTE_SCORE
        fields: dict[str, Any] = {
            "title": body.title,
            "link": str(body.link),
            "author": f"user:{name}",
            "time": now,
            "votes": 1,
        }
        async with db.pipeline() as pipe:
            pipe.hset(article, mapping=fields).sadd(f"upvoted:{id}", f"user:{name}")
            pipe.zadd("score:", {article: score}).zadd("time:", {article: now})
            for group in body.groups:
                pipe.sadd(f"group:{group}", article)
            await pipe.execute()
        return Article(**fields, id=id, score=score, vote="up")

    return router


def book_routes(db: Any, caller: Any) -> fastapi.APIRouter:
    """The book's functions as they are, one command after the other."""
    router, book, known = fastapi.APIRouter(prefix="/book"), AsyncBookArticles(db), fastapi.Depends(caller)

    @router.get("/articles")
    async def list_articles(page: int = 1, order: Literal["score", "time"] = "score") -> list[dict[str, str]]:
        return await book.get_articles(page, f"{order}:")

    @router.put("/articles/{id}/vote")
    async def vote(id: int, body: Vote, name: str = known) -> dict[str, int]:
        await book.article_vote(f"user:{name}", f"article:{id}")
        return {"id": id}

    @router.post("/articles", status_code=201)
    async def post(body: NewArticle, name: str = known) -> dict[str, str]:
        return {"id": await book.post_article(f"user:{name}", body.title, str(body.link))}

    return router
