"""One route, ready to answer: everything that can be decided before a request comes is decided here."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from plaza.core.http.binding import Nothing, body_decoder, extractors, may_be_empty, query_binder
from plaza.core.http.handler_signature import read_signature
from plaza.core.http.headers import standard_headers, with_headers
from plaza.core.http.request import Request
from plaza.core.http.responses import Response, as_bytes, encode
from plaza.core.http.routes import Route

_decode_nothing = body_decoder(Nothing)


class Reply:
    """What goes out: a status, a body or its pieces, and the headers that are known before the last moment."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes | AsyncIterator[Any]) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def _as_coroutine(handler: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A handler that is a generator gives its stream at once; all others are awaited."""
    if not inspect.isasyncgenfunction(handler):
        return handler

    async def start(*arguments: Any) -> Any:
        return handler(*arguments)

    return start


class Endpoint:
    """A route's own part of a request: its parameters in, its answer out."""

    __slots__ = (
        "_bind_query",
        "_extract",
        "_headers",
        "_takes_query",
        "access",
        "body_limit",
        "body_may_be_empty",
        "handler",
        "identifies",
        "is_form",
        "limit",
        "route",
        "safe",
        "signature",
        "status",
        "takes_body",
        "wants_actor",
    )

    def __init__(self, route: Route, services: Mapping[type, Any]) -> None:
        self.route = route
        self.signature = read_signature(route, services)
        self.safe = route.safe
        self.access = route.access
        self.is_form = route.by_cookie and not route.safe
        self.limit = route.limit
        self.body_limit = route.body_limit
        self.status = route.status
        self.takes_body = bool(self.signature.of_kind("body"))
        self.body_may_be_empty = may_be_empty(self.signature.body())
        self.wants_actor = bool(self.signature.of_kind("actor"))
        # Wrong credentials are refused also where none are needed, if the handler asks who calls.
        self.identifies = self.wants_actor or not route.access.is_open
        self.handler = _as_coroutine(route.handler)
        self._headers = standard_headers(route.media_type)
        self._extract = extractors(self.signature, route.template, services)
        self._bind_query = query_binder(self.signature, route.any_query)
        self._takes_query = bool(self.signature.of_kind("query", "fields"))

    def arguments(self, request: Request) -> list[Any]:
        """What the handler is called with; raises where the request is not what the signature says."""
        query = request.scope["query_string"]
        if query or self._takes_query:
            request.query = self._bind_query(query)
        if request.body and not self.takes_body:
            _decode_nothing(request.body)
        return [extract(request) for extract in self._extract]

    def reply(self, result: Any) -> Reply:
        """A result as it goes out."""
        if isinstance(result, Response):
            return self._special(result)
        if isinstance(result, AsyncIterator):
            return Reply(self.status, self._headers, result)
        if result is None:
            return Reply(204 if self.status == 200 else self.status, standard_headers(None), b"")
        return Reply(self.status, self._headers, encode(result))

    def _special(self, answer: Response[Any]) -> Reply:
        body = answer.body if isinstance(answer.body, AsyncIterator) else as_bytes(answer.body)
        media_type = None if answer.body is None else answer.media_type or self.route.media_type
        return Reply(answer.status or self.status, with_headers(standard_headers(media_type), answer.headers), body)
