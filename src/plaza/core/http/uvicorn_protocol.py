"""A client's connection: uvicorn's, with what it leaves to a proxy in front, for there may be none.

uvicorn waits for ever for a request that never becomes whole, and keeps as many bytes of headers as come: anyone could
hold connections or memory for nothing. It also adds the trailers of a body to the headers of its request, where a proxy
that sets or removes headers never looked (RFC 9110, 6.5.1). And it answers what is no HTTP with plain text.

A request that comes whole, as nearly all do, costs two comparisons here.
"""

from __future__ import annotations

import asyncio
from random import getrandbits
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from plaza.core.errors import BadRequest, PlazaError
from plaza.core.http.headers import standard_headers, with_headers
from plaza.core.http.problem_details import HeadTooLarge, TooSlow, problem
from plaza.core.http.responses import as_bytes

# From the connection, or from the first byte of a further request, to the empty line after its headers.
HEAD_SECONDS = 20.0
# Of headers that come in several pieces; one piece is at most what the event loop reads at once (256 KiB).
HEAD_BYTES = 65_536
# Of what never became a request. Valkey was not asked, and there is no moment it began at.
UNTIMED = ("server-timing", 'valkey;desc="0 round trips";dur=0.000, total;dur=0.000')


class Inbound(HttpToolsProtocol):
    """One connection of a client."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = False
        self._began = False  # a head, in the piece at hand
        self._head_size = 0  # bytes of it in further pieces
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._began = False
        super().data_received(data)
        if self._in_head or (self.cycle is not None and self.cycle.response_complete):
            self._wait_for_head(len(data))

    def on_message_begin(self) -> None:
        self._in_head = self._began = True
        self._head_size = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unset_deadline()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest("This is not a valid HTTP request."))

    def _wait_for_head(self, size: int) -> None:
        """Some of a head has come, or something before it that is none: the time for the rest is counted."""
        if self.transport.is_closing():
            return
        if self._deadline is None:
            self._set_deadline()
        if self._in_head and not self._began:
            self._head_size += size
            if self._head_size > HEAD_BYTES:
                self._refuse(HeadTooLarge(f"The headers are larger than {HEAD_BYTES} bytes.", limit=HEAD_BYTES))

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def _unset_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._set_deadline()  # an answer to an earlier request is on its way
        elif self._in_head:
            self._refuse(TooSlow(f"The headers must arrive within {HEAD_SECONDS:.0f} seconds."))
        else:
            self.transport.close()

    def _refuse(self, error: PlazaError) -> None:
        """Response what never became a request, and hang up."""
        self._unset_deadline()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            request_id = f"{getrandbits(96):024x}"
            answer = problem(error, request_id)
            body = as_bytes(answer.body)
            own = [*answer.headers, ("x-request-id", request_id), UNTIMED, ("content-length", str(len(body)))]
            if ("connection", "close") not in own:
                own.append(("connection", "close"))
            headers = [*self.server_state.default_headers, *with_headers(standard_headers(answer.media_type), own)]
            lines = [b"%s: %s\r\n" % header for header in headers]
            self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body]))
        self.transport.close()
