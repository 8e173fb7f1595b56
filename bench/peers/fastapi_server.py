"""Social, articles and heartbeats the usual way: FastAPI, redis-py asyncio with hiredis, pipelines.

    REDIS_URL=… JWT_SECRET=… python -m bench.peers.fastapi_server PORT

Written as a good engineer would write it on the same keys: what can go in one pipeline does, tokens are verified once,
models are pydantic's. It does less than ours. Counters are counted, so a race or a death leaves them wrong; scores do
not fade; the home feed is a union that is up to 30 seconds old; a list is paged by offset.
"""

from __future__ import annotations

import os
import re
import sys
import time
import uuid
from typing import Annotated, Any

import fastapi
import jwt
import pydantic
import redis.asyncio
import uvicorn

from bench.peers import fastapi_articles, fastapi_live

HOME_SECONDS = 30
RANKED_MS = 14 * 86_400_000
PUBLIC = ("username", "display_name", "bio", "avatar", "links", "role", "postCount", "followerCount", "followingCount",
          "created_at")  # fmt: skip
TAG = re.compile(r"#(\w+)")


class NewPost(pydantic.BaseModel, extra="forbid"):
    content: Annotated[str, pydantic.Field(min_length=1, max_length=10_000)]
    media_url: str | None = None
    hashtags: list[str] = []


class User(pydantic.BaseModel):
    id: str
    username: str
    display_name: str = ""
    bio: str = ""
    avatar: str = ""
    links: str = ""
    role: str
    postCount: int
    followerCount: int
    followingCount: int
    created_at: int


class Post(pydantic.BaseModel):
    id: str
    user_id: str
    username: str
    display_name: str = ""
    avatar: str = ""
    user_role: str
    content: str
    media_url: str | None = None
    hashtags: list[str]
    created_at: int
    likesCount: int
    commentsCount: int
    bookmarksCount: int
    isLiked: bool
    isBookmarked: bool


class Item(pydantic.BaseModel):
    post: Post
    user: User | None


class Pagination(pydantic.BaseModel):
    limit: int
    count: int
    next_cursor: str | None


class Feed(pydantic.BaseModel):
    posts: list[Item]
    pagination: Pagination


class Liked(pydantic.BaseModel):
    id: str
    changed: bool
    isLiked: bool
    likesCount: int


def score(likes: int, comments: int, bookmarks: int, created: int) -> float:
    age = time.time() * 1000 - created
    return (likes * 3 + comments * 5 + bookmarks * 4) / (age / 3_600_000 + 1) if age <= RANKED_MS else 0.0


def make_app(url: str, secret: str) -> fastapi.FastAPI:
    app = fastapi.FastAPI()
    db: Any = redis.asyncio.Redis.from_url(url, decode_responses=True)
    verified: dict[str, str] = {}

    async def caller(authorization: Annotated[str, fastapi.Header()]) -> str:
        name = verified.get(authorization)
        if name is None:
            try:
                claims = jwt.decode(authorization.removeprefix("Bearer "), secret, algorithms=["HS256"])
            except jwt.PyJWTError:
                raise fastapi.HTTPException(401) from None
            name = verified[authorization] = str(claims["username"])
        return name

    async def optional_caller(authorization: Annotated[str | None, fastapi.Header()] = None) -> str | None:
        return await caller(authorization) if authorization else None

    known = fastapi.Depends(caller)
    app.include_router(fastapi_articles.routes(db, caller, optional_caller))
    app.include_router(fastapi_articles.book_routes(db, caller))
    app.include_router(fastapi_live.routes(db, caller))

    async def liking(id: str, name: str, on: bool) -> Liked:
        fields = ("user_id", "banned", "created_at", "hashtags", "commentsCount", "bookmarksCount", "user_role")
        author, banned, created, tags, comments, bookmarks, role = await db.hmget(f"post:{id}", fields)
        if author is None or banned is not None:
            raise fastapi.HTTPException(404)
        async with db.pipeline(transaction=False) as pipe:
            pipe.zscore(f"user:{name}:blocked", author).zscore(f"user:{name}:blocked_by", author)
            (pipe.sadd if on else pipe.srem)(f"post:{id}:likes", name)
            pipe.scard(f"post:{id}:likes")
            blocked, blocked_by, changed, likes = await pipe.execute()
        if blocked is not None or blocked_by is not None:
            raise fastapi.HTTPException(404)
        if changed:
            now = int(time.time() * 1000)
            async with db.pipeline() as pipe:
                pipe.hset(f"post:{id}", "likesCount", likes)
                if on:
                    pipe.zadd(f"post:{id}:likes:recent", {name: now}).zadd(f"user:{name}:liked", {id: now})
                else:
                    pipe.zrem(f"post:{id}:likes:recent", name).zrem(f"user:{name}:liked", id)
                points = score(likes, int(comments), int(bookmarks), int(created))
                for tag in filter(None, (tags or "").split(",")):
                    pipe.zadd(f"hashtag:{tag}:ranked", {id: points})
                if role == "model":
                    pipe.zincrby("models:top:engagement", 3 if on else -3, author)
                await pipe.execute()
        return Liked(id=id, changed=bool(changed), isLiked=on, likesCount=likes)

    @app.post("/posts/{id}/like")
    async def like(id: str, name: str = known) -> Liked:
        return await liking(id, name, True)

    @app.delete("/posts/{id}/like")
    async def unlike(id: str, name: str = known) -> Liked:
        return await liking(id, name, False)

    @app.post("/posts", status_code=201)
    async def create(body: NewPost, name: str = known) -> Post:
        avatar, shown, role = await db.hmget(f"user:{name}", ("avatar", "display_name", "role"))
        if role is None:
            raise fastapi.HTTPException(404)
        tags = list(dict.fromkeys(tag.lower() for tag in [*TAG.findall(body.content), *body.hashtags]))
        id, now = str(uuid.uuid4()), int(time.time() * 1000)
        fields: dict[str, Any] = {
            "id": id, "user_id": name, "username": name, "content": body.content, "created_at": now,
            "hashtags": ",".join(tags), "likesCount": 0, "commentsCount": 0, "bookmarksCount": 0,
            "avatar": avatar or "", "display_name": shown or "", "user_role": role,
        }  # fmt: skip
        if body.media_url:
            fields["media_url"] = body.media_url
        async with db.pipeline() as pipe:
            pipe.hset(f"post:{id}", mapping=fields)
            pipe.zadd(f"user:{name}:posts", {id: now}).hincrby(f"user:{name}", "postCount", 1)
            pipe.zadd("explore:feed", {id: now})
            for tag in tags:
                pipe.zadd(f"hashtag:{tag}:posts", {id: now}).zadd(f"hashtag:{tag}:ranked", {id: 0})
            await pipe.execute()
        return Post(**{**fields, "hashtags": tags, "isLiked": False, "isBookmarked": False})

    async def shown(ids: list[str], name: str, limit: int, offset: int) -> Feed:
        async with db.pipeline(transaction=False) as pipe:
            for id in ids:
                pipe.hgetall(f"post:{id}")
            pipe.zmscore(f"user:{name}:liked", ids).zmscore(f"user:{name}:bookmarked", ids)
            *posts, liked, marked = await pipe.execute()
        authors = list(dict.fromkeys(post["user_id"] for post in posts if post))
        async with db.pipeline(transaction=False) as pipe:
            for author in authors:
                pipe.hmget(f"user:{author}", PUBLIC)
            pipe.zmscore(f"user:{name}:blocked", authors).zmscore(f"user:{name}:blocked_by", authors)
            *rows, blocked, blocked_by = await pipe.execute()
        cards = {
            author: User(id=author, **{name: value for name, value in zip(PUBLIC, row, strict=True) if value})
            for author, row, a, b in zip(authors, rows, blocked, blocked_by, strict=True)
            if a is None and b is None and row[0] is not None
        }  # fmt: skip
        items = []
        for post, like, mark in zip(posts, liked, marked, strict=True):
            if post and "banned" not in post and post["user_id"] in cards:
                tags = [tag for tag in post["hashtags"].split(",") if tag]
                flags = {"hashtags": tags, "isLiked": like is not None, "isBookmarked": mark is not None}
                items.append(Item(post=Post(**{**post, **flags}), user=cards[post["user_id"]]))
        more = str(offset + limit) if len(ids) == limit else None
        return Feed(posts=items, pagination=Pagination(limit=limit, count=len(items), next_cursor=more))

    @app.get("/feed/explore")
    async def explore(limit: int = 20, cursor: int = 0, name: str = known) -> Feed:
        ids = await db.zrevrange("explore:feed", cursor, cursor + limit - 1)
        return await shown(ids, name, limit, cursor)

    @app.get("/feed/following")
    async def following(limit: int = 20, cursor: int = 0, name: str = known) -> Feed:
        home = f"tmp:home:peer:{name}"
        ids = await db.zrevrange(home, cursor, cursor + limit - 1)
        if not ids:
            followed = await db.smembers(f"user:{name}:following")
            async with db.pipeline() as pipe:
                pipe.zunionstore(home, [f"user:{other}:posts" for other in followed])
                pipe.expire(home, HOME_SECONDS).zrevrange(home, cursor, cursor + limit - 1)
                ids = (await pipe.execute())[-1]
        return await shown(ids, name, limit, cursor)

    return app


if __name__ == "__main__":
    uvicorn.run(
        make_app(os.environ["REDIS_URL"], os.environ["JWT_SECRET"]), host="127.0.0.1", port=int(sys.argv[1]),
        loop="uvloop", http="httptools", lifespan="off", access_log=False,
        log_level="warning", proxy_headers=False, server_header=False,
    )  # fmt: skip
