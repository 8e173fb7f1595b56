"""The OpenAPI 3.1 document, made from the signatures that also bind requests, so the two cannot differ.

msgspec makes the schemas. Security and expected errors follow from the route's declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from plaza.core.errors import PlazaError
from plaza.core.http.access import Access
from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.handler_signature import Signature, query_fields
from plaza.core.http.problem_details import PROBLEM, Problem
from plaza.core.http.responses import EVENTS, JSON
from plaza.core.http.routes import Route, Routes

_REF = "#/components/schemas/{name}"

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
    Access.SESSION: ("sessionCookie",),
    Access.VIEWER: _TOKENS,
}

# Headers of every response.
_HEADERS: dict[str, Any] = {
    "X-Request-ID": {"description": "The id of this request in the server's log.", "schema": {"type": "string"}},
    "Server-Timing": {"description": "Valkey round trips and time, and the total time.", "schema": {"type": "string"}},
}

_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and body within 24 hours return the first response again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


class Schemas:
    """The schemas of all types of the document, made together so that names are unique."""

    def __init__(self, types: Iterable[Any]) -> None:
        distinct = list({str(kind): kind for kind in types}.values())
        made, self.components = msgspec.json.schema_components(distinct, ref_template=_REF)
        self._by_type = dict(zip(map(str, distinct), made, strict=True))

    def for_type(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        return self._by_type[str(kind)]


def describe(groups: Sequence[Routes], routes: Iterable[BoundRoute], version: str) -> dict[str, Any]:
    """The OpenAPI document of all routes."""
    listed = [bound for bound in routes if bound.route.in_openapi]
    schemas = Schemas([Problem, *(kind for bound in listed for kind in _types(bound))])
    paths: dict[str, Any] = {}
    for bound in listed:
        paths.setdefault(bound.route.template, {})[bound.route.method.lower()] = _operation(bound, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Plaza", "version": version, "description": "A community platform back end on Valkey."},
        "servers": [{"url": "/"}],
        "tags": _tags(groups),
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": CREDENTIALS,
            "responses": {_problem_name(status): _problem_response(status) for status in sorted(_titles())},
            "headers": _HEADERS,
        },
        "x-problems": _problems(),
    }


def _tags(groups: Sequence[Routes]) -> list[dict[str, str]]:
    about: dict[str, str] = {}
    for group in groups:
        if any(route.in_openapi for route in group.routes):
            about[group.tag] = about.get(group.tag) or group.about
    return [{"name": tag, "description": text} for tag, text in about.items()]


def _types(bound: BoundRoute) -> list[Any]:
    """Every type that an operation uses."""
    signature = bound.signature
    kinds = [parameter.type for parameter in signature.of_kind("path")]
    kinds += [kind for _, _, kind, _ in query_fields(signature)]
    kinds += [kind for kind in (signature.body(), signature.result) if kind not in (None, bytes)]
    return kinds + [kind for kind in bound.route.other_responses.values() if kind is not None]


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


def _operation(bound: BoundRoute, schemas: Schemas) -> dict[str, Any]:
    route, signature = bound.route, bound.signature
    summary, _, description = (inspect.getdoc(route.handler) or "").partition("\n")
    operation: dict[str, Any] = {"operationId": operation_id(route), "tags": [route.tag]}
    if summary:
        operation["summary"] = summary.strip()
    if description.strip():
        operation["description"] = description.strip()
    parameters = _parameters(signature, schemas) + ([_IDEMPOTENCY_KEY] if route.idempotent else [])
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
    roles = ["admin"] if access is Access.ADMIN else []
    accepted = [{scheme: roles if scheme in _TOKENS else []} for scheme in _SCHEMES[access]]
    return [*accepted, {}] if access.is_open else accepted


def _parameters(signature: Signature, schemas: Schemas) -> list[dict[str, Any]]:
    parameters = [_parameter(p.label, "path", p.type, schemas, required=True) for p in signature.of_kind("path")]
    for _, label, kind, default in query_fields(signature):
        described = _parameter(label, "query", kind, schemas, required=default is msgspec.NODEFAULT)
        if default not in (msgspec.NODEFAULT, None):
            described["schema"] = {**described["schema"], "default": msgspec.to_builtins(default)}
        parameters.append(described)
    return parameters


def _parameter(label: str, place: str, kind: Any, schemas: Schemas, *, required: bool) -> dict[str, Any]:
    schema = dict(schemas.for_type(kind))
    described: dict[str, Any] = {"name": label, "in": place, "required": required}
    # For `str | None` the description is in the string's schema, one level down.
    for branch in (schema, *schema.get("anyOf", ())):
        if "description" in branch:
            described["description"] = branch["description"]
    return {**described, "schema": schema}


def _request_body(bound: BoundRoute, schemas: Schemas) -> dict[str, Any]:
    kind = bound.signature.body()
    if kind is bytes:
        return {"required": True, "content": {bound.route.request_media_type: {}}}
    return {"required": not bound.body_may_be_empty, "content": {JSON: {"schema": schemas.for_type(kind)}}}


def _responses(bound: BoundRoute, schemas: Schemas) -> dict[str, Any]:
    route, signature = bound.route, bound.signature
    status = 204 if signature.result is None and route.status == 200 else route.status
    responses = {str(status): _response(status, _content(route, signature, schemas))}
    for other, kind in route.other_responses.items():
        content = None if kind is None else {JSON: {"schema": schemas.for_type(kind)}}
        responses[str(other)] = _response(other, content)
    for error in _expected_errors(bound):
        responses.setdefault(str(error), {"$ref": f"#/components/responses/{_problem_name(error)}"})
    return dict(sorted(responses.items()))


def _response(status: int, content: dict[str, Any] | None) -> dict[str, Any]:
    described: dict[str, Any] = {"description": _PHRASES.get(status, "A response."), "headers": _header_refs()}
    if content is not None:
        described["content"] = content
    return described


_PHRASES = {200: "OK.", 201: "Created.", 202: "Accepted; work continues.", 204: "No content.", 304: "Not modified."}


def _content(route: Route, signature: Signature, schemas: Schemas) -> dict[str, Any] | None:
    if signature.result is None:
        return None
    if signature.result in (bytes, str):
        return {route.media_type: {"schema": {"type": "string"}}}
    schema = schemas.for_type(signature.result)
    if route.media_type == EVENTS:
        schema = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
    return {route.media_type: {"schema": schema}}


def _expected_errors(bound: BoundRoute) -> list[int]:
    """The error statuses that follow from the declaration. A domain's own errors are in the route's description."""
    signature, route = bound.signature, bound.route
    expected = [503]
    if signature.of_kind("path", "query", "query_struct") or not bound.safe:
        expected += [400, 422]
    if bound.identifies:
        expected += [401]
    if not bound.access.is_open:
        expected += [403]
    if signature.of_kind("path"):
        expected += [404]
    if not bound.safe:
        expected += [409, 413]
    if route.limit is not None:
        expected += [429]
    return expected


def _titles() -> dict[int, str]:
    """The title of each status: the title of the error class that defines it."""
    titles: dict[int, str] = {}
    for error in PlazaError.by_code.values():
        if PlazaError in error.__bases__:
            titles.setdefault(error.status, error.title)
    return titles


def _problem_name(status: int) -> str:
    return f"Problem{status}"


def _problem_response(status: int) -> dict[str, Any]:
    headers = _header_refs()
    if status in (429, 503):
        headers["Retry-After"] = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
    content = {PROBLEM: {"schema": {"$ref": _REF.format(name=Problem.__name__)}}}
    return {"description": _titles()[status], "headers": headers, "content": content}


def _header_refs() -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in _HEADERS}


def _problems() -> list[dict[str, Any]]:
    """Every `code` of a problem, for clients that handle them and for the documentation page."""
    errors = sorted(PlazaError.by_code.values(), key=lambda error: (error.status, error.code))
    return [{"code": error.code, "status": error.status, "title": error.title} for error in errors]
