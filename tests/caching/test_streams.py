"""A response that is not cacheable, or that is a stream, makes no other reader wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from plaza.caching import PageCacheClient, PageCacheMiddleware, PageCacheOptions
from tests.servers import Cluster, Server
from tests.timeouts import within_time_limit


class EndlessSite:
    """Responses that end when `end` is set."""

    def __init__(self) -> None:
        self.count = 0
        self.end = asyncio.Event()

    async def _chunks(self) -> AsyncIterator[bytes]:
        self.count += 1
        yield f"first {self.count}".encode()
        await self.end.wait()
        yield b", last"

    async def events(self, _: Request) -> Response:
        return StreamingResponse(self._chunks(), media_type="text/event-stream")

    async def page(self, _: Request) -> Response:
        return StreamingResponse(self._chunks(), media_type="text/html")


class StreamReader:
    """Reads a response of an ASGI application as it comes."""

    def __init__(self, app: Any, path: str) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.has_started = asyncio.Event()
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "scheme": "http"}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await asyncio.Event().wait()

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.headers = dict(message["headers"])
        elif message.get("body"):
            self.body += message["body"]
            self.has_started.set()


@pytest.mark.parametrize("path", ["/events", "/page"])
async def test_readers_of_an_endless_response_do_not_wait_for_each_other(
    place: Server | Cluster, valkey: Any, path: str
) -> None:
    site = EndlessSite()
    routes = [Route("/events", site.events), Route("/page", site.page)]
    # A reader that waited would wait for the lease.
    client = PageCacheClient(place.url, PageCacheOptions(beta=0, lease_seconds=600))
    await client.purge("none")  # connected
    app = PageCacheMiddleware(Starlette(routes=routes), client)
    async with within_time_limit():
        readers = [StreamReader(app, path) for _ in range(4)]
        for reader in readers:
            await reader.has_started.wait()
        assert sorted(reader.body for reader in readers) == [b"first 1", b"first 2", b"first 3", b"first 4"]
        site.end.set()
        await asyncio.gather(*(reader.task for reader in readers))
        assert all(reader.body.endswith(b", last") for reader in readers)
        last = StreamReader(app, path)
        await last.task
    # A stream of a page that has ended is a page: that of the first reader was stored.
    is_hit = b" hit;" in last.headers[b"cache-status"]
    assert is_hit == (path == "/page")
    assert site.count == (4 if is_hit else 5)
    await client.close()
