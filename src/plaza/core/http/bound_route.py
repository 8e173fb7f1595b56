"""A route bound to its services. Everything that does not depend on a request is decided here, once."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, get_origin
from urllib.parse import parse_qsl

import msgspec

from plaza.core.api_keys import Scope
from plaza.core.http.access import API_KEY, EVENTS
from plaza.core.http.argument_binding import EmptyBody, allows_empty_body, body_decoder, extractors, query_binder
from plaza.core.http.handler_signature import read_signature
from plaza.core.http.headers import standard_headers, with_headers
from plaza.core.http.multipart import Multipart
from plaza.core.http.request import Request
from plaza.core.http.responses import Response, as_bytes, encode
from plaza.core.http.routes import Route
from plaza.core.settings import Settings

_decode_empty_body = body_decoder(EmptyBody)


class EncodedResponse:
    """A response as bytes: a status, headers, and a body or an iterator of its chunks."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes | AsyncIterator[Any]) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def _required_scope(route: Route) -> Scope | None:
    """Return what a named API key needs for a route; None: the scope `admin`."""
    if route.access is EVENTS:
        return "events"
    if route.access is API_KEY:
        return "sync"
    return "read" if route.safe else None


def _as_coroutine(handler: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler that is an async generator, so that every handler can be awaited."""
    if not inspect.isasyncgenfunction(handler):
        return handler

    async def start(*arguments: Any) -> Any:
        return handler(*arguments)

    return start


class BoundRoute:
    """Turns a request into the handler's arguments, and the handler's result into a response."""

    __slots__ = (
        "_bind_query",
        "_body_index",
        "_extract",
        "_headers",
        "_takes_query",
        "access",
        "body_limit",
        "body_may_be_empty",
        "handler",
        "identifies",
        "is_admin_action",
        "is_form",
        "limit",
        "route",
        "safe",
        "scope",
        "signature",
        "status",
        "takes_body",
        "takes_form",
        "wants_actor",
    )

    def __init__(self, route: Route, services: Mapping[type, Any], settings: Settings) -> None:
        self.route = route
        self.signature = read_signature(route, services)
        self.safe = route.safe
        self.access = route.access
        self.is_form = route.by_cookie and not route.safe
        self.is_admin_action = route.is_admin_action
        self.limit = route.limit
        self.scope = _required_scope(route)
        self.body_limit = route.body_limit if isinstance(route.body_limit, int) else route.body_limit(settings)
        self.status = route.status
        self.takes_body = bool(self.signature.of_kind("body"))
        self.takes_form = get_origin(self.signature.body()) is Multipart
        self.body_may_be_empty = not self.takes_form and allows_empty_body(self.signature.body())
        kinds = [parameter.kind for parameter in self.signature.parameters]
        self._body_index = kinds.index("body") if self.takes_body else None
        self.wants_actor = bool(self.signature.of_kind("actor"))
        # A handler that takes the actor refuses wrong credentials, also where none are needed.
        self.identifies = self.wants_actor or not route.access.is_open
        self.handler = _as_coroutine(route.handler)
        self._headers = standard_headers(route.media_type)
        self._extract = extractors(self.signature, route.template, services)
        self._bind_query = query_binder(self.signature, route.ignores_unknown_query)
        self._takes_query = bool(self.signature.of_kind("query", "query_struct"))

    def arguments(self, request: Request) -> list[Any]:
        """The handler's arguments. Raises `Invalid` or `BadRequest` if the request does not match the signature."""
        query = request.query_string
        if query or self._takes_query:
            request.query = self._bind_query(query)
        if request.body and not self.takes_body:
            _decode_empty_body(request.body)
        return [extract(request) for extract in self._extract]

    def logged_values(self, arguments: Sequence[Any]) -> str:
        """What the security log may contain of a request's body: `role=admin`."""
        if self._body_index is None or not self.route.logged_fields:
            return ""
        body = arguments[self._body_index]
        values = dict(parse_qsl(body.decode("latin-1"))) if isinstance(body, bytes) else msgspec.structs.asdict(body)
        given = [(name, values.get(name, msgspec.UNSET)) for name in self.route.logged_fields]
        return " ".join(f"{name}={value}" for name, value in given if value is not msgspec.UNSET)

    def encode(self, result: Any) -> EncodedResponse:
        """The response of a handler's result."""
        if isinstance(result, msgspec.Struct):  # first, because it is the most frequent and the cheapest check
            return EncodedResponse(self.status, self._headers, encode(result))
        if isinstance(result, Response):
            return self._encode_response(result)
        if isinstance(result, AsyncIterator):
            return EncodedResponse(self.status, self._headers, result)
        if result is None:
            return EncodedResponse(204 if self.status == 200 else self.status, standard_headers(None), b"")
        return EncodedResponse(self.status, self._headers, encode(result))

    def _encode_response(self, response: Response[Any]) -> EncodedResponse:
        body = response.body if isinstance(response.body, AsyncIterator) else as_bytes(response.body)
        media_type = None if response.body is None else response.media_type or self.route.media_type
        headers = with_headers(standard_headers(media_type), response.headers)
        return EncodedResponse(response.status or self.status, headers, body)
