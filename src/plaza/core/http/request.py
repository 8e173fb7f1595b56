"""One HTTP request, as handlers see it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import getrandbits
from typing import TYPE_CHECKING, Any

from plaza.core.auth import Actor
from plaza.core.clients import ClientInfo
from plaza.core.http.exchange import Exchange
from plaza.core.http.trusted_proxies import TrustedProxies
from plaza.core.rate_limits import LimitState
from plaza.core.valkey import RequestUsage

if TYPE_CHECKING:
    from plaza.core.http.multipart import FormData, UploadedFile

# An id given by a proxy or a client is used if it is safe in a log line and in a header.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Request:
    """A request. A handler takes one if its typed parameters are not enough."""

    actor: Actor | None = None
    body = b""
    form: FormData | None = None  # of a request that is sent as multipart/form-data
    is_body_refused = False  # the body was too large, and the rest of it may still arrive
    query: Any = None  # the query parameters, once bound
    path_values: Sequence[str] = ()  # path parameters, still encoded
    template = ""  # the route's template; empty if no route was found
    limits: LimitState | None = None  # the caller's rate limit
    visitor: Any = None  # the visitor of a page, once the pages have looked it up
    streams = False  # the response is an event stream
    # With an `Idempotency-Key`: the id by which a row in SQL detects a repetition (`sql_idempotency.py`).
    row_operation: str | None = None
    _address: str | None = None
    _operation: str | None = None

    def __init__(self, exchange: Exchange, proxies: TrustedProxies) -> None:
        self.exchange = exchange
        self.method = exchange.method
        self.path = exchange.path  # as it was sent, still encoded, without the root path
        self.headers = exchange.headers
        given = exchange.headers.get("x-request-id")
        self.request_id = given if given and _REQUEST_ID.fullmatch(given) else f"{getrandbits(96):024x}"
        self.usage = RequestUsage(only_reads=exchange.method in ("GET", "HEAD"))
        self._proxies = proxies

    @property
    def operation(self) -> str:
        """An id that is the same in every run of one idempotent request, by which a command detects a repetition.

        The request id does not serve: a client may send the same id with different requests.
        """
        if self._operation is None:
            self._operation = f"{getrandbits(128):032x}"
        return self._operation

    @operation.setter
    def operation(self, given: str) -> None:
        self._operation = given

    @property
    def files(self) -> list[UploadedFile]:
        """The files of a form. They are gone when the request ends."""
        return [] if self.form is None else self.form.files

    @property
    def query_string(self) -> bytes:
        return self.exchange.query_string

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection; None on a unix socket."""
        return self.exchange.client[0] if self.exchange.client else None

    @property
    def address(self) -> str:
        """The client's address: the peer's, or the one that trusted proxies report."""
        if self._address is None:
            self._address = self._proxies.client_address(self.peer, self.headers)
        return self._address

    @property
    def client(self) -> ClientInfo:
        """The client's address and program, for sign-ins."""
        return ClientInfo(self.address, self.headers.get("user-agent", ""))

    @property
    def proxied(self) -> bool:
        """Whether a trusted proxy sent the request. Then its other headers about the client are trusted too."""
        return self._proxies.is_proxied(self.peer)

    @property
    def secure(self) -> bool:
        """Whether the client uses https, to Plaza or to a trusted proxy."""
        return self._proxies.is_https(self.peer, self.headers, self.exchange.scheme)
