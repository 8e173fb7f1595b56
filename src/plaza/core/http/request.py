"""One HTTP request, as handlers see it."""

from __future__ import annotations

import re
from random import getrandbits
from typing import TYPE_CHECKING, Any

from plaza.core.auth import Actor
from plaza.core.clients import ClientInfo
from plaza.core.http.trusted_proxies import TrustedProxies
from plaza.core.rate_limits import LimitState
from plaza.core.valkey import RequestUsage

if TYPE_CHECKING:
    from plaza.core.http.multipart import FormData, UploadedFile

# An id given by a proxy or a client is used if it is safe in a log line and in a header.
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Request:
    """A request. A handler takes one if its typed parameters are not enough."""

    __slots__ = (
        "_address",
        "_operation",
        "_proxies",
        "actor",
        "body",
        "form",
        "headers",
        "is_body_refused",
        "limits",
        "path_values",
        "query",
        "request_id",
        "row_operation",
        "scope",
        "streams",
        "template",
        "usage",
        "visitor",
    )

    def __init__(self, scope: dict[str, Any], proxies: TrustedProxies) -> None:
        self.scope = scope
        # ASGI gives names in lower case.
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if len(self.headers) != len(scope["headers"]):
            self.headers = _joined(scope["headers"])
        given = self.headers.get("x-request-id")
        self.request_id = given if given and _REQUEST_ID.fullmatch(given) else f"{getrandbits(96):024x}"
        self.usage = RequestUsage(only_reads=scope["method"] in ("GET", "HEAD"))
        self.actor: Actor | None = None
        self.body = b""
        self.form: FormData | None = None  # of a request that is sent as multipart/form-data
        self.is_body_refused = False  # the body was too large, and the rest of it may still arrive
        self.query: Any = None  # the query parameters, once bound
        self.path_values: list[str] = []  # path parameters, still encoded
        self.template = ""  # the route's template; empty if no route was found
        self.limits: LimitState | None = None  # the caller's rate limit
        self.visitor: Any = None  # the visitor of a page, once the pages have looked it up
        self.streams = False  # the response is an event stream
        self._proxies = proxies
        self._address: str | None = None
        self._operation: str | None = None
        # With an `Idempotency-Key`: the id by which a row in SQL detects a repetition (`sql_idempotency.py`).
        self.row_operation: str | None = None

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
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The path as it was sent, still encoded."""
        return str(self.scope["raw_path"].decode("latin-1"))

    @property
    def address(self) -> str:
        """The client's address: the peer's, or the one that trusted proxies report."""
        if self._address is None:
            self._address = self._proxies.client_address(self.scope)
        return self._address

    @property
    def client(self) -> ClientInfo:
        """The client's address and program, for sign-ins."""
        return ClientInfo(self.address, self.headers.get("user-agent", ""))

    @property
    def proxied(self) -> bool:
        """Whether a trusted proxy sent the request. Then its other headers about the client are trusted too."""
        return self._proxies.is_proxied(self.scope)

    @property
    def secure(self) -> bool:
        """Whether the client uses https, to Plaza or to a trusted proxy."""
        return self._proxies.is_https(self.scope)


def _joined(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers of which one was sent twice, joined as RFC 9110, 5.3 says. Two tokens become one invalid token."""
    headers: dict[str, str] = {}
    for raw, value in pairs:
        name = raw.decode("latin-1")
        separator = "; " if name == "cookie" else ", "
        headers[name] = (headers[name] + separator if name in headers else "") + value.decode("latin-1")
    return headers
