"""The error responses of an operation. Most follow from its declaration; `raises` adds what its service decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from plaza.core.errors import (
    NEVER_MISSING,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PlazaError,
    TooFast,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.handler_signature import Parameter
from plaza.core.http.openapi.schemas import reference
from plaza.core.http.problem_details import PROBLEM, Problem, UrlTooLong

# Headers of every response.
HEADERS: dict[str, Any] = {
    "X-Request-ID": {"description": "The id of this request in the server's log.", "schema": {"type": "string"}},
    "Server-Timing": {"description": "Valkey round trips and time, and the total time.", "schema": {"type": "string"}},
}


def error_responses(bound: BoundRoute) -> dict[str, Any]:
    """The error responses of an operation, by status."""
    by_status: dict[int, list[type[PlazaError]]] = defaultdict(list)
    for error in _expected_errors(bound):
        if error not in by_status[error.status]:
            by_status[error.status].append(error)
    return {str(status): _response(errors) for status, errors in by_status.items()}


def _expected_errors(bound: BoundRoute) -> Iterator[type[PlazaError]]:
    signature, route = bound.signature, bound.route
    yield Unavailable
    if signature.parameters_of_request() or not bound.safe:
        yield BadRequest
    if signature.parameters_of_request() or not bound.safe or not route.ignores_unknown_query:
        yield Invalid
    if signature.parameters_of_request():
        yield UrlTooLong
    if bound.identifies:
        yield Unauthenticated
    if not bound.access.is_open:
        yield Forbidden
    if any(_may_be_missing(parameter) for parameter in signature.of_kind("path")):
        yield NotFound
    if not bound.safe:
        yield TooLarge
    if route.idempotent:
        yield Conflict
    if route.limit is not None:
        yield TooFast
    yield from route.raises


def _may_be_missing(parameter: Parameter) -> bool:
    return NEVER_MISSING not in getattr(parameter.type, "__metadata__", ())


def _response(errors: list[type[PlazaError]]) -> dict[str, Any]:
    """A reference to the response that all operations share, or one that lists the codes of this operation."""
    general = shared_errors()[errors[0].status]
    if errors == [general]:
        return {"$ref": f"#/components/responses/{general.__name__}"}
    codes = [f"`{error.code}`: {error.title}." for error in errors]
    return problem_response(general, " ".join(codes))


def shared_errors() -> dict[int, type[PlazaError]]:
    """The error class that defines a status, by status."""
    found: dict[int, type[PlazaError]] = {}
    for error in PlazaError.by_code.values():
        if PlazaError in error.__bases__:
            found.setdefault(error.status, error)
    return dict(sorted(found.items()))


def problem_response(error: type[PlazaError], description: str = "") -> dict[str, Any]:
    """The response of an error: a problem document."""
    headers = header_references()
    if error.status in (429, 503):
        headers["Retry-After"] = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
    content = {PROBLEM: {"schema": reference(Problem.__name__)}}
    return {"description": description or f"{error.title}.", "headers": headers, "content": content}


def header_references() -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in HEADERS}
