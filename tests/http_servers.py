"""Real uvicorn servers on loopback, in the test's own loop, and clients for them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from plaza.app import Plaza, running
from plaza.core.http.uvicorn_protocol import GuardedHttpProtocol
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from tests.databases import with_tables
from tests.servers import Cluster, Server
from tests.timeouts import TIME_LIMIT_SECONDS, within_time_limit


class QuietServer(uvicorn.Server):
    """One that leaves signals to pytest."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """As uvicorn's own, but it notices sooner that it should stop."""
        tick = 0
        while not await self.on_tick(tick):
            tick += 1
            await asyncio.sleep(0.01)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's own, but it does not wait if there is no connection."""
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for listening in self.servers:
            listening.close()
        await self.lifespan.shutdown()


@contextlib.asynccontextmanager
async def all_of_plaza(place: Server | Cluster, data_dir: Path) -> AsyncIterator[Plaza]:
    """The whole application on one server or a cluster, without rate limits."""
    async with running(Settings(data_dir=with_tables(data_dir), valkey_url=place.url, rate_limits=False)) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@contextlib.asynccontextmanager
async def serving(app: Any, *, http: type[GuardedHttpProtocol] | None = None, **options: Any) -> AsyncIterator[str]:
    """The app behind uvicorn on a free port; gives its URL. Only Plaza's own app has Plaza's protocol."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        http=http or (GuardedHttpProtocol if hasattr(app, "handle") else "httptools"),
        timeout_graceful_shutdown=20,  # a test that leaves a request behind fails and does not hang
        **options,
    )
    server = QuietServer(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not task.done(), task
            await asyncio.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await asyncio.sleep(0.002)  # the server hears that its clients left, and need not wait for them
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def client_of(app: Any, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app, served by uvicorn."""
    options: dict[str, Any] = {
        "timeout": TIME_LIMIT_SECONDS,
        "verify": False,
    }  # else it reads all certificates of the machine
    async with serving(app) as url, httpx.AsyncClient(base_url=url, headers=headers, **options) as client:
        yield client


async def raw(port: int, request: bytes) -> bytes:
    """Everything that a server sends in answer to some bytes, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = b""
    async with within_time_limit():
        with contextlib.suppress(ConnectionResetError):
            while chunk := await reader.read(65_536):
                answer += chunk
    writer.close()
    return answer


def is_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Asserts that an answer is a whole problem document, and gives it."""
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == status
    assert document["request_id"] == answer.headers["x-request-id"]
    assert document["type"] == f"/docs#problem-{code}"
    assert document["title"]
    assert document["detail"]
    return document
