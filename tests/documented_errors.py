"""Finds error responses that the OpenAPI document does not list for their operation, in whatever test provokes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from plaza.core.http.app import App
from plaza.core.http.bound_route import BoundRoute, EncodedResponse
from plaza.core.http.openapi.errors import error_responses
from plaza.core.http.problem_details import PROBLEM, Problem
from plaza.core.http.request import Request

# Errors that every request can meet, whatever its operation. docs/http.md describes them.
OF_EVERY_REQUEST = {"cross_origin", "damaged_key", "internal"}

_respond = App._response


@contextmanager
def watching() -> Iterator[list[str]]:
    """The undocumented errors of Plaza's own routes in this process, as they occur."""
    found: list[str] = []

    async def respond(app: App, request: Request) -> EncodedResponse:
        response = await _respond(app, request)
        bound = _route(app, request)
        if bound is not None and not _is_documented(bound, response):
            route = bound.route
            found.append(f"{route.method} {route.template}: {response.status} {response.body!r}")
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(App, "_response", respond)
        yield found


def _route(app: App, request: Request) -> BoundRoute | None:
    """The route of a request, if it is one of Plaza's and in the document."""
    node = app.router.find(request.path)
    route = node[0].methods.get("GET" if request.method == "HEAD" else request.method) if node else None
    if route is None or not route.in_openapi or not route.handler.__module__.startswith("plaza."):
        return None
    return app.bind(route)


def _is_documented(bound: BoundRoute, response: EncodedResponse) -> bool:
    if response.status < 400 or str(response.status) in error_responses(bound):
        return True
    if (b"content-type", PROBLEM.encode()) not in response.headers or not isinstance(response.body, bytes):
        return False
    return msgspec.json.decode(response.body, type=Problem).code in OF_EVERY_REQUEST
