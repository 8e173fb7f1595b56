"""One operation of the document: its names, parameters, body, credentials and responses."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from plaza.core.http.access import Access
from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.handler_signature import query_fields
from plaza.core.http.multipart import MEDIA_TYPE as MULTIPART
from plaza.core.http.openapi.errors import error_responses, header_references, problem_response, shared_errors
from plaza.core.http.openapi.schemas import Schemas, without_null
from plaza.core.http.responses import EVENTS, JSON
from plaza.core.http.routes import Route

CREDENTIALS: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "authorizationHeader": {"type": "apiKey", "in": "header", "name": "x-authorization", "description": "A JWT."},
    "accessToken": {"type": "apiKey", "in": "header", "name": "x-access-token", "description": "A JWT."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "For servers. Has admin rights."},
    "sessionCookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "plaza",
        "description": "The session, `__Host-plaza` on https. Without one a new session starts.",
    },
}

_TOKENS = ("bearer", "authorizationHeader", "accessToken")
_SCHEMES: dict[Access, tuple[str, ...]] = {
    Access.PUBLIC: (*_TOKENS, "apiKey"),
    Access.AUTHENTICATED: (*_TOKENS, "apiKey"),
    Access.USER: _TOKENS,
    Access.ADMIN: (*_TOKENS, "apiKey"),
    Access.API_KEY: ("apiKey", "bearer"),
    Access.EVENTS: (*_TOKENS, "apiKey"),
    Access.SESSION: ("sessionCookie",),
    Access.VIEWER: _TOKENS,
}

_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and body within 24 hours return the first response again.",
    "schema": {"type": "string", "pattern": r"^[!-~]{1,255}$(?!\n)"},
}

_BINARY = {"type": "string", "format": "binary"}

_PHRASES = {
    200: "OK.",
    201: "Created.",
    202: "Accepted; work continues.",
    204: "No content.",
    304: "Not modified.",
    400: "Bad request.",
}


def operation_id(route: Route) -> str:
    """The name of a handler in camel case, `createPost`. Generators name functions after it."""
    first, *others = route.handler.__name__.split("_")
    return first + "".join(word.capitalize() for word in others)


def require_unique_operation_ids(routes: Iterable[Route]) -> None:
    """Refuse two operations of the same name, so that the start fails and not the generator of a client."""
    known: dict[str, Route] = {}
    for route in routes:
        name = operation_id(route)
        other = known.setdefault(name, route) if route.in_openapi else route
        assert other is route, (
            f"{route.method} {route.template} and {other.method} {other.template} have the same operationId {name}. "
            "Rename one of the handlers."
        )


def request_types(bound: BoundRoute) -> Iterator[Any]:
    """The types of what a client sends."""
    yield from (parameter.type for parameter in bound.signature.of_kind("path"))
    yield from (kind for _, _, kind, _ in query_fields(bound.signature))
    body = _body_type(bound)
    if body not in (None, bytes):
        yield body


def response_types(bound: BoundRoute) -> Iterator[Any]:
    """The types of what a client receives."""
    kinds = [bound.signature.result, *bound.route.other_responses.values()]
    yield from (kind for kind in kinds if kind not in (None, bytes, str))


def describe_operation(bound: BoundRoute, schemas: Schemas) -> dict[str, Any]:
    """An operation of the OpenAPI document."""
    route = bound.route
    description = (inspect.getdoc(route.handler) or "").partition("\n")[2]
    operation: dict[str, Any] = {"operationId": operation_id(route), "tags": [route.tag]}
    if route.summary:
        operation["summary"] = route.summary
    if description.strip():
        operation["description"] = description.strip()
    parameters = [*_parameters(bound, schemas), *([_IDEMPOTENCY_KEY] if route.idempotent else [])]
    if parameters:
        operation["parameters"] = parameters
    if bound.takes_body:
        operation["requestBody"] = _request_body(bound, schemas)
    if bound.identifies or bound.access is Access.SESSION:
        operation["security"] = _security(bound.access)
    operation["responses"] = _responses(bound, schemas)
    return operation


def _security(access: Access) -> list[dict[str, list[str]]]:
    """The credentials that an operation accepts, each with the role it needs; `{}` where none are needed."""
    roles = ["admin"] if access in (Access.ADMIN, Access.EVENTS) else []
    accepted = [{scheme: roles if scheme in _TOKENS else []} for scheme in _SCHEMES[access]]
    return [*accepted, {}] if access.is_open else accepted


def _parameters(bound: BoundRoute, schemas: Schemas) -> Iterator[dict[str, Any]]:
    for parameter in bound.signature.of_kind("path"):
        yield _parameter(bound, parameter.label, "path", parameter.type, schemas)
    for _, label, kind, default in query_fields(bound.signature):
        yield _parameter(bound, label, "query", kind, schemas, default)


def _parameter(
    bound: BoundRoute, label: str, place: str, kind: Any, schemas: Schemas, default: Any = msgspec.NODEFAULT
) -> dict[str, Any]:
    schema = dict(without_null(schemas.for_type(kind)))
    examples = schema.pop("examples", [])
    described: dict[str, Any] = {"name": label, "in": place, "required": default is msgspec.NODEFAULT}
    if "description" in schema:
        described["description"] = schema["description"]
    if default not in (msgspec.NODEFAULT, None):
        schema["default"] = msgspec.to_builtins(default)
    described["schema"] = schema
    if label in bound.route.example_parameters:
        described["example"] = bound.route.example_parameters[label]
    elif examples:
        described["example"] = examples[0]
    return described


def _body_type(bound: BoundRoute) -> Any:
    """The type of the body: what the route declares, or what the handler takes; of a form, its text fields."""
    kind = bound.route.body_schema or bound.signature.body()
    return get_args(kind)[0] if bound.takes_form else kind


def _request_body(bound: BoundRoute, schemas: Schemas) -> dict[str, Any]:
    kind = _body_type(bound)
    schema = _BINARY if kind is bytes else schemas.for_type(kind)
    if bound.takes_form:
        fields = schemas.components[kind.__name__]
        required = ["file", *fields.get("required", ())]
        schema = {**fields, "properties": {"file": _BINARY, **fields["properties"]}, "required": required}
    content: dict[str, Any] = {"schema": schema}
    if bound.route.example is not None:
        content["example"] = bound.route.example
    media_type = bound.route.request_media_type if bound.signature.body() is bytes else JSON
    if bound.takes_form:
        media_type = MULTIPART
    return {"required": not bound.body_may_be_empty, "content": {media_type: content}}


def _responses(bound: BoundRoute, schemas: Schemas) -> dict[str, Any]:
    route, signature = bound.route, bound.signature
    status = 204 if signature.result is None and route.status == 200 else route.status
    responses = error_responses(bound)
    responses[str(status)] = _response(status, _content(bound, schemas))
    for other, kind in route.other_responses.items():
        content = None if kind is None else {JSON: {"schema": schemas.for_type(kind)}}
        if other >= 400:
            content = {**(content or {}), **problem_response(shared_errors()[other])["content"]}
        responses[str(other)] = _response(other, content)
    return dict(sorted(responses.items()))


def _response(status: int, content: dict[str, Any] | None) -> dict[str, Any]:
    described: dict[str, Any] = {"description": _PHRASES.get(status, "A response."), "headers": header_references()}
    if content is not None:
        described["content"] = content
    return described


def _content(bound: BoundRoute, schemas: Schemas) -> dict[str, Any] | None:
    result, media_type = bound.signature.result, bound.route.media_type
    if result is None:
        return None
    if result in (bytes, str):
        return {media_type: {"schema": _BINARY if result is bytes else {"type": "string"}}}
    schema = schemas.for_type(result)
    if media_type == EVENTS:
        schema = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
    return {media_type: {"schema": schema}}
