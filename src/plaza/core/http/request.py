"""One request, as the code that answers it may see it."""

from __future__ import annotations

import re
from random import getrandbits
from typing import Any

from plaza.core.auth import Actor
from plaza.core.http.trusted_proxies import Proxies
from plaza.core.rate_limits import LimitState
from plaza.core.valkey import RequestUsage

# An id that a proxy or a client gave is kept if it can stand in a log line and a header as it is.
_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Request:
    """A request. Handlers that need more than their typed parameters take one."""

    __slots__ = (
        "_address",
        "_operation",
        "_proxies",
        "actor",
        "body",
        "headers",
        "is_cut_off",
        "limits",
        "query",
        "request_id",
        "scope",
        "streams",
        "template",
        "usage",
        "values",
        "visitor",
    )

    def __init__(self, scope: dict[str, Any], proxies: Proxies) -> None:
        self.scope = scope
        # Names come in lower case.
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if len(self.headers) != len(scope["headers"]):
            self.headers = _joined(scope["headers"])
        given = self.headers.get("x-request-id")
        self.request_id = given if given and _SANE_ID.fullmatch(given) else f"{getrandbits(96):024x}"
        self.usage = RequestUsage()
        self.actor: Actor | None = None
        self.body = b""
        self.is_cut_off = False  # the body was too large, and the rest of it may still come
        self.query: Any = None  # the query parameters, once bound
        self.values: list[str] = []  # path parameters, as they came
        self.template = ""  # the route's; empty where none was found
        self.limits: LimitState | None = None  # where the caller stands
        self.visitor: Any = None  # who looks at a page, once the pages have found out
        self.streams = False  # the answer goes on for as long as someone listens
        self._proxies = proxies
        self._address: str | None = None
        self._operation: str | None = None

    @property
    def operation(self) -> str:
        """An id that is the same in every run of the same keyed request, by which a verb knows what it has done.

        It is not the request id: a client that sends one id twice has not asked for one thing twice.
        """
        if self._operation is None:
            self._operation = f"{getrandbits(128):032x}"
        return self._operation

    @operation.setter
    def operation(self, given: str) -> None:
        self._operation = given

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The path as it came, still encoded."""
        return str(self.scope["raw_path"].decode("latin-1"))

    @property
    def address(self) -> str:
        """The client's address: the peer's, or what trusted proxies say of it."""
        if self._address is None:
            self._address = self._proxies.client(self.scope)
        return self._address

    @property
    def proxied(self) -> bool:
        """Whether a trusted proxy sent it, whose other headers on the client count too."""
        return self._proxies.behind(self.scope)

    @property
    def secure(self) -> bool:
        """Whether the client speaks https, to us or to a trusted proxy."""
        return self._proxies.secure(self.scope)


def _joined(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers of which one came twice: as RFC 9110, 5.3 reads them. Two tokens so become one that nobody issued."""
    headers: dict[str, str] = {}
    for raw, value in pairs:
        name = raw.decode("latin-1")
        between = "; " if name == "cookie" else ", "
        headers[name] = (headers[name] + between if name in headers else "") + value.decode("latin-1")
    return headers
