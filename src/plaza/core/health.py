"""What an operator and a load balancer ask: are you there, can you work."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from plaza import __version__
from plaza.core.errors import Unavailable
from plaza.core.http.access import PUBLIC
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey

# A load balancer waits a second or two; an answer later than that is as good as none.
READY_SECONDS = 1.0

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
    """The state of this process and of what it stands on."""

    def __init__(
        self, valkey: Valkey, sql: Sql, draining: asyncio.Event | None = None, *, patience: float = READY_SECONDS
    ) -> None:
        self.valkey = valkey
        self.sql = sql
        self.patience = patience
        self._draining = draining or asyncio.Event()

    async def ready(self) -> Readiness:
        """Whether requests can be answered now. Asks Valkey (every primary) and SQL at the same time."""
        valkey, sql = await asyncio.gather(self._check(self._ask_valkey()), self._check(self.sql.ping()))
        checks = {"valkey": valkey, "sql": sql}
        if self._draining.is_set():
            raise Unavailable("This process is ending.", checks=checks)
        away = [name for name, state in checks.items() if state != "ok"]
        if away:
            raise Unavailable(f"Away: {', '.join(away)}.", checks=checks)
        return Readiness("ready", checks)

    async def _ask_valkey(self) -> None:
        await asyncio.gather(*(node.call("PING") for node in self.valkey.primaries()))

    async def _check(self, asking: Any) -> str:
        try:
            await asyncio.wait_for(asking, self.patience)
        except Unavailable as error:
            return error.detail
        except TimeoutError:
            return f"no answer in {self.patience:g} s"
        return "ok"


@route.get("/healthz", access=PUBLIC, limit=None)
async def healthz() -> Health:
    """The process runs. Asks nothing of others, so that a restart is not the answer to Valkey being away."""
    return Health()


@route.get("/readyz", access=PUBLIC, limit=None)
async def readyz(system: System) -> Readiness:
    """Valkey and SQL answer; 503 otherwise, and while the process is ending."""
    return await system.ready()


@route.get("/ping", access=PUBLIC, limit=None)
async def ping() -> Pong:
    """Answers, and does nothing else."""
    return Pong()


@route.get("/", access=PUBLIC, limit=None, ignores_unknown_query=True)
async def welcome(request: Request) -> Response[Welcome]:
    """Where to look. A browser is sent to the pages for people."""
    headers = [("vary", "accept")]
    if "text/html" in request.headers.get("accept", ""):
        return Response(status=302, headers=[*headers, ("location", "/app")])
    body = Welcome("Plaza", __version__, docs="/docs", openapi="/openapi.json", health="/readyz")
    return Response(body, headers=headers)
