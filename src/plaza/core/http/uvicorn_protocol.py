"""uvicorn's HTTP protocol with the limits that it leaves to a proxy, because Plaza may run without one.

uvicorn waits without limit for the headers of a request and stores any amount of them. It waits without limit for a
client that does not read its response. So a client could hold connections and memory. It adds the trailers of a body to
the headers of the request, where no proxy has checked them (RFC 9110, 6.5.1). It answers invalid HTTP with plain text.

A request whose headers arrive in one piece, as nearly all do, costs two comparisons here.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from plaza.core.errors import BadRequest, PlazaError, Unavailable
from plaza.core.http.admission import ARRIVED, AdmissionControl, overloaded_response
from plaza.core.http.connection_limits import ConnectionLimits
from plaza.core.http.problem_details import HeadersTooLarge, RequestTimedOut
from plaza.core.http.raw_responses import RawResponse

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


class GuardedHttpProtocol(HttpToolsProtocol):
    """One client connection."""

    limits: ClassVar[ConnectionLimits | None] = None  # of this process; `limited_protocol` sets it

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_headers = False
        self._started_in_piece = False  # the headers started in the piece that is being parsed
        self._header_bytes = 0  # in the pieces after the first
        self._deadline: asyncio.TimerHandle | None = None
        self._read_deadline = ReadDeadline()
        self._is_counted = False
        self._unanswered: list[RequestResponseCycle] = []  # more than one if requests are pipelined

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.limits is not None:
            self._is_counted = self.limits.accept(_peer_address(self))
            if not self._is_counted:
                self._refuse(Unavailable("Too many connections. Close some, or try again."))
                return
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._read_deadline.cancel()
        if self.limits is not None and self._is_counted:
            self.limits.release(_peer_address(self))
        super().connection_lost(exc)
        for cycle in self._unanswered:  # uvicorn tells only the last one, but an earlier one may be running
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        self._started_in_piece = False
        super().data_received(data)
        if self._in_headers or (self.cycle is not None and self.cycle.response_complete):
            self._wait_for_headers(len(data))

    def pause_writing(self) -> None:
        """The response does not fit into the buffers: the client must read some of it, again and again."""
        super().pause_writing()
        self._read_deadline.start(self.transport)

    def resume_writing(self) -> None:
        self._read_deadline.cancel()
        super().resume_writing()

    def on_message_begin(self) -> None:
        self._in_headers = self._started_in_piece = True
        self._header_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # otherwise it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._cancel_deadline()
        super().on_headers_complete()
        self._unanswered = [cycle for cycle in self._unanswered if not cycle.response_complete]
        if self.cycle is not None:
            self._unanswered.append(self.cycle)

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest("This is not a valid HTTP request."))

    def _wait_for_headers(self, size: int) -> None:
        """Limit the time and the size of headers that have not arrived completely."""
        if self.transport.is_closing():
            return
        if self._deadline is None:
            self._start_deadline()
        if self._in_headers and not self._started_in_piece:
            self._header_bytes += size
            if self._header_bytes > MAX_HEADER_BYTES:
                limit = MAX_HEADER_BYTES
                self._refuse(HeadersTooLarge(f"The headers are larger than {limit} bytes.", limit=limit))

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(HEADER_TIMEOUT_SECONDS, self._on_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_deadline()  # the response to an earlier request is still being sent
        elif self._in_headers:
            self._refuse(RequestTimedOut(f"The headers must arrive within {HEADER_TIMEOUT_SECONDS:.0f} seconds."))
        else:
            self.transport.close()

    def _refuse(self, error: PlazaError) -> None:
        """Send an error response without running the application, and close the connection."""
        self._cancel_deadline()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(RawResponse(error, close=True).encoded(self.server_state.default_headers))
        self.transport.close()


class AdmittingHttpProtocol(GuardedHttpProtocol):
    """One client connection of a process that refuses requests under overload."""

    admission: ClassVar[AdmissionControl]  # of this process; `limited_protocol` sets it

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Run the application for a request, unless the process is overloaded: then the request costs no more."""
        scope: dict[str, Any] = cycle.scope  # type: ignore[assignment]
        scope[ARRIVED] = monotonic()
        if self.admission.refuses(scope["method"], scope["raw_path"]):
            self.admission.refuse_later(partial(self._refuse_overloaded, cycle))
        else:
            super()._start_asgi_task(cycle, app)

    def _refuse_overloaded(self, cycle: RequestResponseCycle) -> None:
        """Answer a request that was not started. What arrives of its body later is ignored."""
        if self.transport.is_closing():
            return
        closes = not cycle.keep_alive or cycle.waiting_for_100_continue
        response = _OVERLOADED_CLOSE if closes else _OVERLOADED
        cors = self.admission.cors_headers(cycle.scope)  # type: ignore[arg-type]
        self.transport.write(response.encoded([*cycle.default_headers, *cors]))
        cycle.response_started = cycle.response_complete = True
        if closes:
            self.transport.close()
        self.on_response_complete()


def _peer_address(protocol: GuardedHttpProtocol) -> str | None:
    return protocol.client[0] if protocol.client else None


def limited_protocol(
    limits: ConnectionLimits | None, admission: AdmissionControl | None = None
) -> type[GuardedHttpProtocol]:
    """The protocol with these limits. uvicorn makes one object per connection, so they are in the class."""
    if admission is None:
        return type("LimitedHttpProtocol", (GuardedHttpProtocol,), {"limits": limits})
    return type("LimitedHttpProtocol", (AdmittingHttpProtocol,), {"limits": limits, "admission": admission})
