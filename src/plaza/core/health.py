"""Health routes for operators and load balancers, and the start page of the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import msgspec

from plaza import __version__
from plaza.core.errors import OutdatedProcess, Unavailable
from plaza.core.functions import Functions
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.root_path import with_root
from plaza.core.sql import Sql

# Load balancers wait a second or two for a response.
READY_SECONDS = 1.0
# A new connection may take longer than that. But one that hangs is given up, so that the next check opens another.
PING_SECONDS = 10.0

route = Routes("system", about="The process itself.")


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    status: Literal["ready"]
    checks: dict[str, str]


class Pong(msgspec.Struct, frozen=True):
    message: Literal["pong"] = "pong"


class Welcome(msgspec.Struct, frozen=True):
    name: str
    version: str
    docs: str
    openapi: str
    health: str


class System:
    """The state of this process, of Valkey and of SQL."""

    def __init__(
        self,
        functions: Functions,
        sql: Sql,
        draining: asyncio.Event | None = None,
        *,
        timeout_seconds: float = READY_SECONDS,
        start_page: str = "/app",
    ) -> None:
        self.start_page = start_page  # of browsers
        self.functions = functions
        self.sql = sql
        self.timeout_seconds = timeout_seconds
        self._draining = draining or asyncio.Event()
        self._pings: dict[str, asyncio.Task[None]] = {}

    async def ready(self) -> Readiness:
        """Check every Valkey primary and SQL at once. Raises `Unavailable` if one fails or the process shuts down.

        Raises `OutdatedProcess` if a newer Plaza has replaced the Lua libraries: then most routes fail.
        """
        checks: dict[str, str] = {}
        pings = {"valkey": self.functions.require_loaded, "sql": self.sql.ping}
        states = await asyncio.gather(*map(self._check, pings, pings.values()), return_exceptions=True)
        for name, state in zip(pings, states, strict=True):
            if isinstance(state, BaseException):
                raise state
            checks[name] = state
        if self._draining.is_set():
            raise Unavailable("This process is shutting down.", checks=checks)
        unreachable = [name for name, state in checks.items() if state != "ok"]
        if unreachable:
            raise Unavailable(f"Unreachable: {', '.join(unreachable)}.", checks=checks)
        return Readiness("ready", checks)

    async def _check(self, name: str, ping: Callable[[], Coroutine[Any, Any, None]]) -> str:
        """Wait for a ping. One that takes longer goes on: the next check finds the connection that it opens."""
        running = self._pings.get(name)
        if running is None or running.done():
            running = self._pings[name] = asyncio.create_task(_within_limit(ping))
            running.add_done_callback(lambda task: task.cancelled() or task.exception())  # also if no check waits
        await asyncio.wait({running}, timeout=self.timeout_seconds)
        if not running.done():
            return f"no response in {self.timeout_seconds:g} s"
        try:
            running.result()
        except OutdatedProcess:
            raise
        except Unavailable as error:
            return error.detail
        return "ok"


async def _within_limit(ping: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        async with asyncio.timeout(PING_SECONDS):
            await ping()
    except TimeoutError:
        raise Unavailable(f"no response in {PING_SECONDS:g} s") from None


@route.get("/healthz", access=PUBLIC, limit=None)
async def get_health() -> Health:
    """Check that the process runs.

    Does not check Valkey or SQL: restarting the process would not bring them back.
    """
    return Health()


@route.get("/readyz", access=PUBLIC, limit=None)
async def get_readiness(system: System) -> Readiness:
    """Check that Valkey and SQL respond.

    503 otherwise, during shutdown, and if a newer Plaza has changed what the keys mean.
    """
    return await system.ready()


@route.get("/ping", access=PUBLIC, limit=None)
async def ping() -> Pong:
    """Reply with `pong`."""
    return Pong()


@route.get("/", access=PUBLIC, limit=None, ignores_unknown_query=True)
async def get_welcome(request: Request, system: System) -> Response[Welcome]:
    """Get links to the documentation. Browsers are redirected to `/app`, or to `/docs` where there are no pages."""
    headers = [("vary", "accept")]
    if "text/html" in request.headers.get("accept", ""):
        return Response(status=302, headers=[*headers, ("location", system.start_page)])
    paths = {"docs": "/docs", "openapi": "/openapi.json", "health": "/readyz"}
    body = Welcome("Plaza", __version__, **{name: with_root(path) for name, path in paths.items()})
    return Response(body, headers=headers)
