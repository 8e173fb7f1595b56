"""Real uvicorn servers on loopback, in the test's own loop, and clients for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import uvicorn


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


@contextlib.asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncIterator[str]:
    """The app behind uvicorn on a free port; gives its URL."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        http="httptools",
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
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def client_of(app: Any, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app, served by uvicorn."""
    async with serving(app) as url, httpx.AsyncClient(base_url=url, headers=headers, timeout=10) as client:
        yield client
