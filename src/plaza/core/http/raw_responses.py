"""Error responses that are sent without running the application."""

from __future__ import annotations

from collections.abc import Iterable
from random import getrandbits
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from plaza.core.errors import PlazaError
from plaza.core.http.headers import Headers, standard_headers, with_headers
from plaza.core.http.problem_details import problem
from plaza.core.http.responses import as_bytes

# They have no start time and use no Valkey.
_NO_TIMING = ("server-timing", 'valkey;desc="0 round trips";dur=0.000, total;dur=0.000')
# Replaced by the id of each request; as long as one.
_ANY_ID = "request-id-of-24-letters"


def new_request_id() -> str:
    return f"{getrandbits(96):024x}"


class RawResponse:
    """An error as a complete HTTP response. Only the request id differs, so sending it again costs a microsecond."""

    def __init__(self, error: PlazaError, *, close: bool = False) -> None:
        response = problem(error, _ANY_ID)
        self.status = error.status
        self._body = as_bytes(response.body)
        own: list[tuple[str, Any]] = [*response.headers, ("x-request-id", _ANY_ID), _NO_TIMING]
        own.append(("content-length", str(len(self._body))))
        if close and ("connection", "close") not in own:
            own.append(("connection", "close"))
        self._headers = with_headers(standard_headers(response.media_type), own)
        lines = b"".join(b"%s: %s\r\n" % header for header in self._headers)
        self._text = lines + b"\r\n" + self._body

    def headers(self, request_id: str) -> Headers:
        return [(name, request_id.encode() if name == b"x-request-id" else value) for name, value in self._headers]

    def body(self, request_id: str) -> bytes:
        return self._body.replace(_ANY_ID.encode(), request_id.encode())

    def encoded(self, default_headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The response as it is sent, with a new request id and the server's own headers, such as the date."""
        defaults = [b"%s: %s\r\n" % header for header in default_headers]
        text = self._text.replace(_ANY_ID.encode(), new_request_id().encode())
        return b"".join([STATUS_LINE[self.status], *defaults, text])
