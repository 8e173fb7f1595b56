"""Popular libraries for the same work: cashews and aiocache for pages and rows, starsessions for sessions.

Each is configured as its documentation recommends, with its stampede protection, over redis-py with hiredis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiocache
import aiocache.serializers
import redis.asyncio
from cashews import Cache
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starsessions import SessionAutoloadMiddleware, SessionMiddleware
from starsessions.stores.redis import RedisStore

Render = Callable[[], Awaitable[str]]
Load = Callable[[str], Awaitable[dict[str, Any]]]

# More than the readers that miss at once: a smaller pool would raise errors.
POOL = 600


def page_app(page: Callable[[], Awaitable[str]]) -> Starlette:
    """Return an application with one page; every contender uses it."""

    async def show(request: Request) -> Response:
        return HTMLResponse(await page())

    return Starlette(routes=[Route("/page", show)])


class Cashews:
    """cashews: `@cache(ttl, lock=True)`."""

    def __init__(self, port: int, render: Render, load: Load) -> None:
        self.cache = Cache()
        self.cache.setup(f"redis://127.0.0.1:{port}/1", client_side=False, max_connections=POOL)
        self.app = page_app(self.cache(ttl="300s", key="page", lock=True)(render))
        self.row = self.cache(ttl="300s", key="row:{id}", lock=True)(_named(load))

    async def clear(self) -> None:
        await self.cache.clear()

    async def close(self) -> None:
        await self.cache.close()


class Aiocache:
    """aiocache: `@cached_stampede` for pages, `@cached` with JSON for rows."""

    def __init__(self, port: int, render: Render, load: Load) -> None:
        place = {"cache": aiocache.Cache.REDIS, "endpoint": "127.0.0.1", "port": port, "db": 2}
        place |= {"pool_max_size": POOL}
        json = aiocache.serializers.JsonSerializer()
        text = aiocache.serializers.StringSerializer()
        self.page = aiocache.cached_stampede(lease=5, ttl=300, key="page", serializer=text, **place)(render)
        self.app = page_app(self.page)
        self.row = aiocache.cached(ttl=300, key_builder=lambda _, id: f"row:{id}", serializer=json, **place)(load)
        self._raw: Any = redis.asyncio.Redis(port=port, db=2)

    async def clear(self) -> None:
        await self._raw.flushdb()

    async def close(self) -> None:
        await self.page.cache.close()
        await self.row.cache.close()
        await self._raw.aclose()


def _named(load: Load) -> Load:
    async def row(id: str) -> dict[str, Any]:
        return await load(id)

    return row


class Starsessions:
    """starsessions: a rolling session in Redis, loaded for every request."""

    def __init__(self, port: int) -> None:
        self.connection: Any = redis.asyncio.Redis(port=port, db=3, max_connections=POOL)

        async def enter(request: Request) -> Response:
            request.session["user"] = "ana"
            return PlainTextResponse("ana")

        async def who(request: Request) -> Response:
            return PlainTextResponse(request.session["user"])

        store = RedisStore(connection=self.connection)
        self.app = Starlette(
            routes=[Route("/enter", enter), Route("/who", who)],
            middleware=[
                Middleware(SessionMiddleware, store=store, lifetime=604_800, rolling=True, cookie_https_only=False),
                Middleware(SessionAutoloadMiddleware),
            ],
        )

    async def close(self) -> None:
        await self.connection.aclose()
