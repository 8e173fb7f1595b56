"""An exchange of Plaza's own server: reads from the parser, and writes to the socket.

A complete response is one `write`, and no message objects are made. The protocol (`uvicorn_protocol.py`) creates one
exchange per request, and runs one at a time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from plaza.core.http.exchange import ClientDisconnected, Exchange, HeaderPairs, encoded_headers
from plaza.core.http.problem_details import InternalError
from plaza.core.http.raw_responses import RawResponse

if TYPE_CHECKING:
    from plaza.core.http.uvicorn_protocol import GuardedHttpProtocol

# More of a body waits in the kernel, until the application has read some.
MAX_UNREAD_BYTES = 65_536

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# RFC 9110, 5.1 and 5.5. A line break would begin another header.
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_NOT_IN_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

log = structlog.get_logger("plaza.http")


class HeaderBlock(NamedTuple):
    """Encoded headers without `connection`, and whether that was `close`."""

    text: bytes
    closes: bool


@lru_cache(512)  # most routes always send the same headers
def header_block(pairs: tuple[tuple[bytes, bytes], ...]) -> HeaderBlock:
    """Encode the headers of a response. Raises `ValueError` if one is not valid."""
    for name, value in pairs:
        if not _NAME.fullmatch(name) or _NOT_IN_VALUE.search(value):
            raise ValueError(f"The header {name!r} is not valid.")
    return HeaderBlock(
        encoded_headers(pair for pair in pairs if pair[0] != b"connection"), (b"connection", b"close") in pairs
    )


class ReceivedExchange(Exchange):
    """The request's half: its body as the parser gives it, and the end of the connection."""

    root_path = ""

    def __init__(
        self, connection: GuardedHttpProtocol, method: str, path: str, query_string: bytes, headers: dict[str, str]
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers = headers
        self.client = connection.client
        self.scheme = connection.scheme
        self.keep_alive = True
        self.expects_continue = False  # the client waits for our consent before it sends the body
        self.has_arrived = False  # completely
        self.is_disconnected = False
        self.is_complete = False  # the response
        self._connection = connection
        self._chunks: list[bytes] = []  # of the body
        self._unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None  # of `next_chunk`
        self._on_disconnect: Callable[[], None] | None = None

    def add_to_body(self, data: bytes) -> None:
        """Take a part of the body from the parser."""
        if self.is_complete:
            return  # it will not be read
        self._chunks.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes > MAX_UNREAD_BYTES:
            self._connection.pause_reading()
        self._wake()

    def end_body(self) -> None:
        self.has_arrived = True
        self._wake()

    def disconnect(self) -> None:
        """The connection is lost."""
        self.is_disconnected = True
        self._wake()
        if self._on_disconnect is not None:
            self._on_disconnect()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take_body(self) -> bytes | None:
        return self._take_chunks() if self.has_arrived else None

    async def next_chunk(self) -> tuple[bytes, bool]:
        if self.expects_continue and not self.has_arrived and not self.is_gone():
            self._connection.transport.write(_CONTINUE)
            self.expects_continue = False
        while not self._chunks and not self.has_arrived:
            if self.is_disconnected:
                raise ClientDisconnected
            self._connection.resume_reading()
            self._waiter = self._connection.loop.create_future()
            await self._waiter
        return self._take_chunks(), not self.has_arrived

    def _take_chunks(self) -> bytes:
        chunks, self._chunks, self._unread_bytes = self._chunks, [], 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def is_gone(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.is_disconnected or self._connection.transport.is_closing()

    def watch(self, on_disconnect: Callable[[], None], delay: float) -> None:
        self._on_disconnect = on_disconnect
        if self.is_disconnected:
            self._connection.loop.call_soon(self._tell_disconnected, on_disconnect)

    def _tell_disconnected(self, on_disconnect: Callable[[], None]) -> None:
        if self._on_disconnect is on_disconnect:  # it is still watched
            on_disconnect()

    def unwatch(self) -> None:
        self._on_disconnect = None


class HttpExchange(ReceivedExchange):
    """One request on a connection, and its response."""

    is_started = False  # the response
    _left: int | None = None  # bytes of the response body that were announced and not written yet
    _is_chunked = False

    async def run(self, app: Any) -> None:
        """Run the application. An error that it did not handle ends the connection."""
        try:
            await app.handle(self)
            if not self.is_started and not self.is_gone():
                raise RuntimeError("The application has sent no response.")
        except BaseException as error:  # also a cancellation, at the end of a shutdown
            log.error("exchange_failed", exc_info=error)
            self._fail()
        finally:
            self._connection.tasks.discard(self.task)
            if not self.is_complete:
                self._connection.transport.close()  # the client must not take a part for the whole

    def _fail(self) -> None:
        if not self.is_started and not self.is_gone():
            error = InternalError("An internal error occurred.")
            defaults = self._connection.server_state.default_headers
            self._connection.transport.write(RawResponse(error, close=True).encoded(defaults))

    async def respond(
        self, status: int, headers: HeaderPairs, more: HeaderPairs, body: bytes, *, closes: bool = False
    ) -> None:
        if self._connection.is_write_paused:
            await self._connection.drain()
        if self.is_gone():
            return
        head = self._head(status, headers, more, closes=closes)
        self._connection.transport.write(head if self.method == "HEAD" else head + body)
        self._complete()

    async def start(self, status: int, headers: HeaderPairs, more: HeaderPairs, *, closes: bool = False) -> None:
        await super().start(status, headers, more)
        if self._connection.is_write_paused:
            await self._connection.drain()
        lengths = [int(value) for name, value in (*headers, *more) if name == b"content-length"]
        if lengths:
            (self._left,) = lengths
        elif self.http_version == "1.0":
            closes = True  # the end of the connection is the end of the body
        elif status not in (204, 304) and self.method != "HEAD":
            self._is_chunked = True
            more = [*more, (b"transfer-encoding", b"chunked")]
        if not self.is_gone():
            self._connection.transport.write(self._head(status, headers, more, closes=closes))

    async def write(self, chunk: bytes) -> None:
        if self._connection.is_write_paused:
            await self._connection.drain()
        self._write(chunk)

    async def finish(self, chunk: bytes = b"") -> None:
        if self._connection.is_write_paused:
            await self._connection.drain()
        self._write(chunk)
        if self._left and self.method != "HEAD":
            raise RuntimeError("The body is shorter than its content-length.")
        if not self.is_gone():
            if self._is_chunked:
                self._connection.transport.write(b"0\r\n\r\n")
            self._complete()

    def _write(self, chunk: bytes) -> None:
        if self.is_complete:
            raise RuntimeError("The response is complete.")  # the client would take it for the next one
        if not chunk or self.method == "HEAD":
            return
        if self._left is not None:
            self._left -= len(chunk)
            if self._left < 0:
                raise RuntimeError("The body is longer than its content-length.")
        if not self.is_gone():
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._is_chunked else chunk)

    def _head(self, status: int, headers: HeaderPairs, more: HeaderPairs, *, closes: bool) -> bytes:
        """The status line and headers, up to the empty line."""
        block = header_block(headers if isinstance(headers, tuple) else tuple(headers))
        if closes or block.closes or (self.expects_continue and not self.has_arrived):
            self.keep_alive = False  # in the last case the body may or may not follow
        self.is_started = True
        ending = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        defaults = self._connection.default_headers.encoded(self._connection.server_state.default_headers)
        return b"".join([STATUS_LINE[status], defaults, block.text, encoded_headers(more), ending])

    def _complete(self) -> None:
        self.is_complete = True
        self._on_disconnect = None
        self._connection.exchange_completed(self)
