"""The caches and sessions beside popular libraries for the same work, on one Valkey, in one run.

A cached page and a cached row: the cost of a hit with 64 concurrent callers and with one, and how many computations
when 500 readers miss. A session: the cost to find it and mark it as seen. A worker: how late it is with 10,000 rows.

    python -m bench shop
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bench.harness import Operation, compare, show
from bench.peers.shop_caches import Aiocache, Cashews, Starsessions, page_app
from plaza.caching.keys import ROW_DELAYS, ROW_SCHEDULE
from plaza.caching.middleware import PageCacheMiddleware
from plaza.caching.row_cache import RowCache
from plaza.caching.standalone import connect
from plaza.core.auth import Actor
from plaza.core.clients import UNKNOWN_CLIENT, ClientInfo
from plaza.core.clock import Clock
from plaza.core.domain import NO_PROOF, SecondFactorProof
from plaza.core.functions import Functions
from plaza.sessions.model import Login
from plaza.sessions.service import Sessions
from plaza.sessions.session_finder import SessionFinder
from plaza.sessions.session_store import SessionStore
from plaza.sessions.sign_in import SignIn
from plaza.shop.library import LIBRARY, SESSION_DATA
from tests.servers import running_server

OURS = "plaza"
READERS = 500
HITS = 3_000
# Long enough that all readers miss before the first computation ends.
SLOW_SECONDS = 0.05

PAGE = "<!doctype html><title>GTab</title>" + "<p>A paragraph of an ordinary length about the GTab.</p>" * 80
ROW = {"qty": 629, "name": "GTab 7inch", "description": "A tablet. " * 20, "price": "19.90", "id": 273}


class Origin:
    """Computes pages and rows, and counts the computations."""

    def __init__(self) -> None:
        self.count = 0
        self.slow = False

    async def render(self) -> str:
        self.count += 1
        if self.slow:
            await asyncio.sleep(SLOW_SECONDS)
        return PAGE

    async def load(self, id: str) -> dict[str, Any]:
        self.count += 1
        if self.slow:
            await asyncio.sleep(SLOW_SECONDS)
        return ROW

    async def load_many(self, ids: Sequence[str]) -> Mapping[str, dict[str, Any]]:
        row = await self.load(ids[0])
        return dict.fromkeys(ids, row)


class AsgiClient:
    """Calls an ASGI application as a server does, but without sockets, which cost the same for all."""

    def __init__(self, app: Any, path: str, cookie: str = "") -> None:
        self.app = app
        headers = [(b"host", b"shop.example"), (b"accept", b"text/html")]
        if cookie:
            headers.append((b"cookie", cookie.encode()))
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "server": ("shop.example", 80),
            "client": ("203.0.113.7", 1),
        }

    async def get(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        body, headers = b"", []

        async def send(message: Any) -> None:
            nonlocal body, headers
            if message["type"] == "http.response.start":
                assert message["status"] == 200, message
                headers = list(message["headers"])
            else:
                body += message.get("body", b"")

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        await self.app(dict(self.scope), receive, send)
        return body, headers


class AnyPassword:
    """Accepts every password: password checks are not measured here."""

    async def check(
        self,
        username: str,
        password: str,
        client: ClientInfo = UNKNOWN_CLIENT,
        proof: SecondFactorProof = NO_PROOF,
    ) -> Actor | None:
        return Actor(username, "user")

    def new_device(self, username: str) -> str:
        return ""


def session_app(sessions: Sessions) -> Starlette:
    async def who(request: Request) -> Response:
        visit = await sessions.visit(request.cookies.get("plaza"))
        return PlainTextResponse(visit.user or "")

    return Starlette(routes=[Route("/who", who)])


async def misses(
    title: str, origin: Origin, readers: Mapping[str, tuple[Operation, Callable[[], Awaitable[object]]]]
) -> None:
    """Print the number of computations when many readers miss at once."""
    print(title)
    for name, (read, clear) in readers.items():
        await clear()
        origin.count, origin.slow = 0, True
        await asyncio.gather(*(read() for _ in range(READERS)))
        origin.slow = False
        print(f"  {name:28}{origin.count:12} computations")
    print()


async def hits(what: str, contenders: Mapping[str, tuple[Operation, int]]) -> None:
    show(f"{what}: a hit, 64 concurrent callers", await compare(contenders), OURS)
    alone = {name: (operation, count // 2) for name, (operation, count) in contenders.items()}
    show(f"{what}: a hit, one caller (its latency is 1 s / ops)", await compare(alone, callers=1), OURS)


async def pages_and_rows(functions: Functions, port: int) -> None:
    origin = Origin()
    cashews, aiocache = Cashews(port, origin.render, origin.load), Aiocache(port, origin.render, origin.load)
    ours = AsgiClient(PageCacheMiddleware(page_app(origin.render), functions), "/page")
    peers = {"cashews": AsgiClient(cashews.app, "/page"), "aiocache": AsgiClient(aiocache.app, "/page")}
    rows = RowCache(functions, origin.load_many)
    await rows.schedule("273", 300)

    async def our_row() -> object:
        row = await rows.get("273")
        assert row is not None
        return row.data

    await hits("a cached page of 4 kB", {OURS: (ours.get, HITS)} | {n: (c.get, HITS) for n, c in peers.items()})
    await hits(
        "a cached row",
        {
            OURS: (our_row, HITS),
            "cashews": (lambda: cashews.row("273"), HITS),
            "aiocache": (lambda: aiocache.row("273"), HITS),
        },
    )

    async def clear() -> None:
        await functions.valkey.call("FLUSHDB")

    clears = {"cashews": cashews.clear, "aiocache": aiocache.clear}
    await misses(
        f"{READERS} readers miss a page at once",
        origin,
        {OURS: (ours.get, clear)} | {name: (client.get, clears[name]) for name, client in peers.items()},
    )
    await misses(
        f"{READERS} readers miss a row at once",
        origin,
        {
            OURS: (our_row, clear),
            "cashews": (lambda: cashews.row("273"), cashews.clear),
            "aiocache": (lambda: aiocache.row("273"), aiocache.clear),
        },
    )
    await cashews.close()
    await aiocache.close()


async def sessions(functions: Functions, port: int) -> None:
    finder = SessionFinder(SessionStore(functions, Clock(), SESSION_DATA))
    ours = Sessions(finder)
    visit = await SignIn(finder, AnyPassword()).login(None, Login("ana", "password"))
    peer = Starsessions(port)
    _, headers = await AsgiClient(peer.app, "/enter").get()
    cookie = next(value.decode().partition(";")[0] for name, value in headers if name == b"set-cookie")
    clients = {
        OURS: AsgiClient(session_app(ours), "/who", f"plaza={visit.token}"),
        "starsessions": AsgiClient(peer.app, "/who", cookie),
    }
    for client in clients.values():
        assert (await client.get())[0] == b"ana"
    await hits("a session, found and marked as seen", {name: (client.get, HITS) for name, client in clients.items()})
    await peer.close()


async def worker(functions: Functions) -> None:
    """Print how late one worker is with 10,000 rows and delays of 1 to 60 s, in five seconds."""
    chance, origin = random.Random(1), Origin()
    delays = {str(n): chance.uniform(1, 60) for n in range(10_000)}
    now = time.time()
    for id, delay in delays.items():
        await functions.valkey.batch(
            [("ZADD", ROW_DELAYS(), delay, id), ("ZADD", ROW_SCHEDULE(), now + 4 + chance.uniform(0, delay), id)]
        )
    await asyncio.sleep(max(0.0, now + 4 - time.time()))
    task = asyncio.create_task(RowCache(functions, origin.load_many).worker.run())
    lags, used = [], time.process_time()
    for _ in range(100):
        await asyncio.sleep(0.05)
        ((_, first),) = await functions.valkey.call("ZRANGE", ROW_SCHEDULE(), 0, 0, "WITHSCORES")
        lags.append(max(0.0, time.time() - float(first)))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    print("10,000 scheduled rows with delays of 1 to 60 s, one worker")
    print(f"  at most {max(lags) * 1000:.0f} ms late; {(time.process_time() - used) / 5:.0%} of a core\n")


async def run() -> None:
    with running_server() as server:
        async with connect(server.url) as functions:
            await worker(functions)
            await functions.valkey.call("FLUSHDB")
            await pages_and_rows(functions, server.port)
            shop = Functions(functions.valkey, [LIBRARY])
            await shop.load()
            await sessions(shop, server.port)


def main() -> None:
    asyncio.run(run())
