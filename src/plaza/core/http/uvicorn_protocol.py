"""The protocol of Plaza's connections, run by uvicorn's server. It parses with httptools and runs `App.handle`.

uvicorn's own protocol makes ASGI messages and a dictionary of each request, and writes headers and body apart, which
cost more than most of Plaza's handlers (decision 25).
It also leaves these limits to a proxy, and Plaza may run without one: the time and size of headers, and the time of a
client that does not read its response. Trailers of a body never become headers (RFC 9110, 6.5.1).

Requests on one connection run one after the other. Those that arrive meanwhile wait, and nothing more is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from time import monotonic
from typing import Any, ClassVar

import httptools
from uvicorn.config import Config
from uvicorn.protocols.utils import get_remote_addr, is_ssl
from uvicorn.server import ServerState

from plaza.core.errors import BadRequest, PlazaError, Unavailable
from plaza.core.http.admission import AdmissionControl, overloaded_response
from plaza.core.http.connection_limits import ConnectionLimits
from plaza.core.http.exchange import encoded_headers
from plaza.core.http.http_exchange import HttpExchange
from plaza.core.http.problem_details import HeadersTooLarge, RequestTimedOut
from plaza.core.http.raw_responses import RawResponse
from plaza.core.http.request_parser import RequestParser

# From the connection, or from the first byte of a further request, to the end of its headers.
HEADER_TIMEOUT_SECONDS = 20.0
# A client that reads nothing of a waiting response for so long is disconnected.
READ_TIMEOUT_SECONDS = 30.0
# For headers that arrive in several pieces. One piece is at most what the event loop reads at once (256 KiB).
MAX_HEADER_BYTES = 65_536
_OVERLOADED, _OVERLOADED_CLOSE = overloaded_response(), overloaded_response(close=True)


class ReadDeadline:
    """Disconnects a client that reads nothing of the response that waits for it."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def start(self, transport: asyncio.Transport) -> None:
        """Check after the time limit whether the client has read something."""
        unread = transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(READ_TIMEOUT_SECONDS, self._check, transport, unread)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, transport: asyncio.Transport, unread_before: int) -> None:
        if transport.get_write_buffer_size() < unread_before:
            self.start(transport)
        else:
            transport.abort()  # `close` would wait until the rest is sent


class DefaultHeaders:
    """The headers of every response that uvicorn sets once a second, such as the date, encoded."""

    def __init__(self) -> None:
        self._pairs: object = None
        self._encoded = b""

    def encoded(self, pairs: list[tuple[bytes, bytes]]) -> bytes:
        if pairs is not self._pairs:
            self._pairs, self._encoded = pairs, encoded_headers(pairs)
        return self._encoded


class HeaderDeadline:
    """Limits the time and the size of headers that have not arrived completely."""

    def __init__(self, connection: GuardedHttpProtocol) -> None:
        self._connection = connection
        self._bytes = 0  # in the pieces after the first
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = self._connection.loop.call_later(HEADER_TIMEOUT_SECONDS, self._expire)

    def cancel(self) -> None:
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wait(self, size: int) -> None:
        """A piece of so many bytes did not complete the headers."""
        if self._connection.transport.is_closing():
            return
        if self._timer is None:
            self.start()
        parser = self._connection.parser
        if parser.in_headers and not parser.started_in_piece:
            self._bytes += size
            if self._bytes > MAX_HEADER_BYTES:
                text = f"The headers are larger than {MAX_HEADER_BYTES} bytes."
                self._connection.refuse(HeadersTooLarge(text, limit=MAX_HEADER_BYTES))

    def _expire(self) -> None:
        self._timer = None
        if self._connection.running is not None:
            self.start()  # the response to an earlier request is still being sent
        elif self._connection.parser.in_headers:
            text = f"The headers must arrive within {HEADER_TIMEOUT_SECONDS:.0f} seconds."
            self._connection.refuse(RequestTimedOut(text))
        else:
            self._connection.transport.close()


class IdleDeadline:
    """Closes a connection that has had no request for long. One timer serves all of its requests."""

    def __init__(self, connection: GuardedHttpProtocol, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """No request is running."""
        loop = self._connection.loop
        self._since = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._check)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        connection, left = self._connection, self._seconds
        if connection.running is None and not connection.parser.in_headers:
            left += self._since - connection.loop.time()
        if left <= 0:
            connection.transport.close()
        else:
            self._timer = connection.loop.call_later(left, self._check)


class GuardedHttpProtocol(asyncio.Protocol):
    """One client connection."""

    # Of this process; `limited_protocol` sets them.
    limits: ClassVar[ConnectionLimits | None] = None
    admission: ClassVar[AdmissionControl | None] = None
    default_headers: ClassVar[DefaultHeaders] = DefaultHeaders()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.app: Any = self.admission or config.loaded_app
        self.loop = _loop or asyncio.get_running_loop()
        self.server_state = server_state
        self.tasks = server_state.tasks
        self.transport: asyncio.Transport
        self.client: tuple[str, int] | None = None
        self.scheme = "http"
        self.parser = RequestParser(self)
        self.running: HttpExchange | None = None
        self.is_write_paused = False
        self._waiting: deque[HttpExchange] = deque()
        self._is_read_paused = False
        self._writable = asyncio.Event()
        self._header_deadline = HeaderDeadline(self)
        self._idle_deadline = IdleDeadline(self, config.timeout_keep_alive)
        self._read_deadline = ReadDeadline()
        self._is_counted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.server_state.connections.add(self)  # type: ignore[arg-type]
        self.client = get_remote_addr(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        if self.limits is not None:
            self._is_counted = self.limits.accept(_peer_address(self))
            if not self._is_counted:
                self.refuse(Unavailable("Too many connections. Close some, or try again."))
                return
        self._header_deadline.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self.server_state.connections.discard(self)
        for deadline in (self._header_deadline, self._idle_deadline, self._read_deadline):
            deadline.cancel()
        if self.limits is not None and self._is_counted:
            self.limits.release(_peer_address(self))
        self._waiting.clear()
        self.is_write_paused = False
        self._writable.set()
        if self.running is not None:
            self.running.disconnect()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed(data)
        except httptools.HttpParserError:
            self.refuse(BadRequest("This is not a valid HTTP request."))
            return
        if self.parser.in_headers or self.running is None:
            self._header_deadline.wait(len(data))

    def exchange_begun(self, exchange: HttpExchange) -> None:
        """The headers of a request are complete."""
        self._header_deadline.cancel()
        if self.running is None:
            self._run(exchange)
        else:
            self.pause_reading()
            self._waiting.append(exchange)

    def _run(self, exchange: HttpExchange) -> None:
        """Run the application for a request, unless the process is overloaded: then the request costs no more."""
        self.running = exchange
        if self.admission is not None:
            exchange.arrived = monotonic()
            if self.admission.refuses(exchange):
                self.admission.refuse_later(partial(self._refuse_overloaded, exchange))
                return
        exchange.task = task = self.loop.create_task(exchange.run(self.app))
        self.tasks.add(task)

    def _refuse_overloaded(self, exchange: HttpExchange) -> None:
        """Answer a request that was not started. What arrives of its body later is ignored."""
        if self.transport.is_closing():
            return
        if exchange.expects_continue:
            exchange.keep_alive = False
        response = _OVERLOADED if exchange.keep_alive else _OVERLOADED_CLOSE
        cors = self.admission.cors_headers(exchange) if self.admission is not None else []
        self.transport.write(response.encoded([*self.server_state.default_headers, *cors]))
        exchange.is_started = exchange.is_complete = True
        self.exchange_completed(exchange)

    def exchange_completed(self, exchange: HttpExchange) -> None:
        """A response was written: the next request may run."""
        self.server_state.total_requests += 1
        self.running = None
        if not exchange.keep_alive:
            self.transport.close()
        elif self._waiting:
            self._run(self._waiting.popleft())
        else:
            self._idle_deadline.start()
            self.resume_reading()

    def refuse(self, error: PlazaError) -> None:
        """Send an error response without running the application, and close the connection."""
        self._header_deadline.cancel()
        if self.running is None or not self.running.is_started:
            self.transport.write(RawResponse(error, close=True).encoded(self.server_state.default_headers))
        self.transport.close()

    def shutdown(self) -> None:
        """End the connection after the requests that have arrived. uvicorn calls it."""
        last = self._waiting[-1] if self._waiting else self.running
        if last is None:
            self.transport.close()
        else:
            last.keep_alive = False

    def pause_reading(self) -> None:
        if not self._is_read_paused and not self.transport.is_closing():
            self._is_read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_read_paused and not self.transport.is_closing():
            self._is_read_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """The response does not fit into the buffers: the client must read some of it, again and again."""
        self.is_write_paused = True
        self._writable.clear()
        self._read_deadline.start(self.transport)

    def resume_writing(self) -> None:
        self._read_deadline.cancel()
        self.is_write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        """Wait until the client has read enough of what was written, or is gone."""
        await self._writable.wait()


def _peer_address(protocol: GuardedHttpProtocol) -> str | None:
    return protocol.client[0] if protocol.client else None


def limited_protocol(
    limits: ConnectionLimits | None, admission: AdmissionControl | None = None
) -> type[GuardedHttpProtocol]:
    """The protocol with these limits. uvicorn makes one object per connection, so they are in the class."""
    return type("LimitedHttpProtocol", (GuardedHttpProtocol,), {"limits": limits, "admission": admission})
