"""One request and the way of its response to the client.

`App.handle` takes an `Exchange` and knows nothing about the server. There are two: `HttpExchange` of Plaza's own server
(`http_exchange.py`), which writes to the socket, and `AsgiExchange` for other ASGI servers and frameworks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote

from plaza.core.http.responses import EVENTS

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
HeaderPairs = Sequence[tuple[bytes, bytes]]

SAFE_IN_PATH = "/!$&'()*+,;=:@~"  # characters that a path contains unencoded
EVENT_STREAM = (b"content-type", EVENTS.encode())


class ClientDisconnected(Exception):
    """The client closed the connection. No response can be sent."""


class Exchange:
    """A request as it arrived, and the methods that send its response.

    A complete response is sent with `respond`. Otherwise `start` sends its headers, `write` a part of the body, and
    `finish` ends it. Headers are those of the route, which are often the same, and `more` of this request.
    """

    method: str
    path: str  # as it was sent, still encoded
    query_string: bytes
    headers: dict[str, str]  # names in lower case; those sent twice are joined
    http_version: str
    scheme: str
    client: tuple[str, int] | None  # address and port of the peer; None on a unix socket
    root_path: str  # under which a framework has mounted Plaza
    arrived: float = 0.0  # by `monotonic`'s clock; 0: unknown
    task: asyncio.Task[Any]  # which runs the application
    on_event_stream: Callable[[], None] | None = None  # called when the response begins, if it is an event stream

    def take_body(self) -> bytes | None:
        """Return the whole body, if it has arrived and nothing of it was read; else None."""
        return None

    async def next_chunk(self) -> tuple[bytes, bool]:
        """Return the next part of the body, and whether there is more. Raises `ClientDisconnected`."""
        raise NotImplementedError

    async def respond(
        self, status: int, headers: HeaderPairs, more: HeaderPairs, body: bytes, *, closes: bool = False
    ) -> None:
        """Send a complete response. `closes`: the connection ends after it."""
        raise NotImplementedError

    async def start(self, status: int, headers: HeaderPairs, more: HeaderPairs, *, closes: bool = False) -> None:
        """Send the headers of a response. Without a `content-length` its body may have any length."""
        if self.on_event_stream is not None and EVENT_STREAM in headers:
            self.on_event_stream()

    async def write(self, chunk: bytes) -> None:
        """Send a part of the body, as soon as the client has read enough of what was sent before."""
        raise NotImplementedError

    async def finish(self, chunk: bytes = b"") -> None:
        """Send the last part of the body."""
        raise NotImplementedError

    def watch(self, on_disconnect: Callable[[], None], delay: float) -> None:
        """Call a function when the client disconnects, until `unwatch`. Watching may begin after a delay."""
        raise NotImplementedError

    def unwatch(self) -> None:
        raise NotImplementedError


class AsgiExchange(Exchange):
    """An exchange over ASGI messages."""

    def __init__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.method = scope["method"]
        raw: bytes = scope.get("raw_path") or quote(scope["path"], safe=SAFE_IN_PATH).encode()
        self.path = raw.decode("latin-1")
        self.query_string = scope["query_string"]
        self.headers = {}
        for name, value in scope["headers"]:  # ASGI gives names in lower case
            add_header(self.headers, name.decode("latin-1"), value.decode("latin-1"))
        self.http_version = scope.get("http_version", "1.1")
        self.scheme = scope.get("scheme", "http")
        client = scope.get("client")
        self.client = tuple(client) if client and client[0] else None
        self.root_path = scope.get("root_path") or ""
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self._receive = receive
        self._send = send
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def next_chunk(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return message.get("body", b""), bool(message.get("more_body"))

    async def respond(
        self, status: int, headers: HeaderPairs, more: HeaderPairs, body: bytes, *, closes: bool = False
    ) -> None:
        await self.start(status, headers, more, closes=closes)
        await self.finish(body)

    async def start(self, status: int, headers: HeaderPairs, more: HeaderPairs, *, closes: bool = False) -> None:
        await super().start(status, headers, more)
        pairs = [*headers, *more, *([(b"connection", b"close")] if closes else [])]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def write(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self, chunk: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": chunk})

    def watch(self, on_disconnect: Callable[[], None], delay: float) -> None:
        # Watching costs a task, and most requests end before the delay.
        self._timer = asyncio.get_running_loop().call_later(delay, self._start_watching, on_disconnect)

    def _start_watching(self, on_disconnect: Callable[[], None]) -> None:
        async def wait() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                pass
            on_disconnect()

        self._watcher = asyncio.get_running_loop().create_task(wait())

    def unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()


def add_header(headers: dict[str, str], name: str, value: str) -> None:
    """Add a header. One that is sent twice is joined, as RFC 9110, 5.3 says; two tokens become one invalid token."""
    if name in headers:
        value = f"{headers[name]}{'; ' if name == 'cookie' else ', '}{value}"
    headers[name] = value


def encoded_headers(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they are sent."""
    return b"".join([b"%b: %b\r\n" % pair for pair in pairs])
