"""The OpenAPI 3.1 document, made from the same signatures that bind requests, so it cannot say anything else.

Schemas are msgspec's own. What a type cannot say — who may ask, which errors to expect — follows from what the route
declares.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from plaza.core.errors import PlazaError
from plaza.core.http.access import Access
from plaza.core.http.endpoint import Endpoint
from plaza.core.http.handler_signature import Signature, query_fields
from plaza.core.http.problem_details import PROBLEM, Problem
from plaza.core.http.responses import EVENTS, JSON
from plaza.core.http.routes import Route, Routes

_REF = "#/components/schemas/{name}"

CREDENTIALS: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "authorizationHeader": {"type": "apiKey", "in": "header", "name": "x-authorization", "description": "A JWT."},
    "accessToken": {"type": "apiKey", "in": "header", "name": "x-access-token", "description": "A JWT."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "For servers: admin rights."},
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

# On every answer, whatever it is.
_HEADERS: dict[str, Any] = {
    "X-Request-ID": {"description": "Names this request in our log.", "schema": {"type": "string"}},
    "Server-Timing": {"description": "Valkey round trips and time, and the total.", "schema": {"type": "string"}},
}

_IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and body within 24 hours give the first answer again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


class Schemas:
    """The schemas of all types of a document, made together so that names are settled once."""

    def __init__(self, types: Iterable[Any]) -> None:
        distinct = list({str(kind): kind for kind in types}.values())
        made, self.components = msgspec.json.schema_components(distinct, ref_template=_REF)
        self._by_type = dict(zip(map(str, distinct), made, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        return self._by_type[str(kind)]


def describe(groups: Sequence[Routes], endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """The whole document."""
    listed = [endpoint for endpoint in endpoints if endpoint.route.listed]
    schemas = Schemas([Problem, *(kind for endpoint in listed for kind in _types(endpoint))])
    names = _operation_ids([endpoint.route for endpoint in listed])
    paths: dict[str, Any] = {}
    for endpoint, name in zip(listed, names, strict=True):
        route = endpoint.route
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(endpoint, name, schemas)
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
        if any(route.listed for route in group.routes):
            about[group.tag] = about.get(group.tag) or group.about
    return [{"name": tag, "description": text} for tag, text in about.items()]


def _types(endpoint: Endpoint) -> list[Any]:
    """Every type an operation mentions."""
    signature = endpoint.signature
    kinds = [parameter.type for parameter in signature.of_kind("path")]
    kinds += [kind for _, _, kind, _ in query_fields(signature)]
    kinds += [kind for kind in (signature.body(), signature.answer) if kind not in (None, bytes)]
    return kinds + [kind for kind in endpoint.route.also.values() if kind is not None]


def _operation_ids(routes: list[Route]) -> list[str]:
    """`articles_create`; with the method where a handler serves several."""
    plain = [f"{route.tag}_{route.handler.__name__}".replace(" ", "_").replace("-", "_") for route in routes]
    often = Counter(plain)
    both = zip(plain, routes, strict=True)
    names = [name if often[name] == 1 else f"{name}_{route.method.lower()}" for name, route in both]
    assert len(set(names)) == len(names), f"two handlers of one tag share a name: {Counter(names).most_common(1)}"
    return names


def _operation(endpoint: Endpoint, name: str, schemas: Schemas) -> dict[str, Any]:
    route, signature = endpoint.route, endpoint.signature
    summary, _, description = (inspect.getdoc(route.handler) or "").partition("\n")
    operation: dict[str, Any] = {"operationId": name, "tags": [route.tag]}
    if summary:
        operation["summary"] = summary.strip()
    if description.strip():
        operation["description"] = description.strip()
    parameters = _parameters(signature, schemas) + ([_IDEMPOTENCY_KEY] if route.idempotent else [])
    if parameters:
        operation["parameters"] = parameters
    if endpoint.takes_body:
        operation["requestBody"] = _request_body(endpoint, schemas)
    if endpoint.identifies or endpoint.access is Access.SESSION:
        operation["security"] = _security(endpoint.access)
    operation["responses"] = _responses(endpoint, schemas)
    return operation


def _security(access: Access) -> list[dict[str, list[str]]]:
    """The credentials that an operation accepts, each with the role it needs; `{}` where none are needed."""
    roles = ["admin"] if access is Access.ADMIN else []
    accepted = [{scheme: roles if scheme in _TOKENS else []} for scheme in _SCHEMES[access]]
    return [*accepted, {}] if access.is_open else accepted


def _parameters(signature: Signature, schemas: Schemas) -> list[dict[str, Any]]:
    found = [_parameter(p.label, "path", p.type, schemas, required=True) for p in signature.of_kind("path")]
    for _, label, kind, default in query_fields(signature):
        described = _parameter(label, "query", kind, schemas, required=default is msgspec.NODEFAULT)
        if default not in (msgspec.NODEFAULT, None):
            described["schema"] = {**described["schema"], "default": msgspec.to_builtins(default)}
        found.append(described)
    return found


def _parameter(label: str, place: str, kind: Any, schemas: Schemas, *, required: bool) -> dict[str, Any]:
    schema = dict(schemas.of(kind))
    described: dict[str, Any] = {"name": label, "in": place, "required": required}
    # Of `str | None` the description belongs to the string, one level down.
    for branch in (schema, *schema.get("anyOf", ())):
        if "description" in branch:
            described["description"] = branch["description"]
    return {**described, "schema": schema}


def _request_body(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    kind = endpoint.signature.body()
    if kind is bytes:
        return {"required": True, "content": {endpoint.route.takes: {}}}
    return {"required": not endpoint.body_may_be_empty, "content": {JSON: {"schema": schemas.of(kind)}}}


def _responses(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    route, signature = endpoint.route, endpoint.signature
    status = 204 if signature.answer is None and route.status == 200 else route.status
    responses = {str(status): _response(status, _content(route, signature, schemas))}
    for other, kind in route.also.items():
        content = None if kind is None else {JSON: {"schema": schemas.of(kind)}}
        responses[str(other)] = _response(other, content)
    for error in _expected_errors(endpoint):
        responses.setdefault(str(error), {"$ref": f"#/components/responses/{_problem_name(error)}"})
    return dict(sorted(responses.items()))


def _response(status: int, content: dict[str, Any] | None) -> dict[str, Any]:
    described: dict[str, Any] = {"description": _PHRASES.get(status, "An answer."), "headers": _header_refs()}
    if content is not None:
        described["content"] = content
    return described


_PHRASES = {200: "Done.", 201: "Made.", 202: "Taken on; it goes on.", 204: "Done; nothing to say.", 304: "Not changed."}


def _content(route: Route, signature: Signature, schemas: Schemas) -> dict[str, Any] | None:
    if signature.answer is None:
        return None
    if signature.answer in (bytes, str):
        return {route.media_type: {"schema": {"type": "string"}}}
    schema = schemas.of(signature.answer)
    if route.media_type == EVENTS:
        schema = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
    return {route.media_type: {"schema": schema}}


def _expected_errors(endpoint: Endpoint) -> list[int]:
    """The errors that follow from what the route is; a domain's own are in `also` or its description."""
    signature, route = endpoint.signature, endpoint.route
    expected = [503]
    if signature.of_kind("path", "query", "fields") or not endpoint.safe:
        expected += [400, 422]
    if endpoint.identifies:
        expected += [401]
    if not endpoint.access.is_open:
        expected += [403]
    if signature.of_kind("path"):
        expected += [404]
    if not endpoint.safe:
        expected += [409, 413]
    if route.limit is not None:
        expected += [429]
    return expected


def _titles() -> dict[int, str]:
    """One title for each status: that of the error which gave the status its meaning."""
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
    """Every `code` a problem can have, for clients that handle them and people who meet one."""
    errors = sorted(PlazaError.by_code.values(), key=lambda error: (error.status, error.code))
    return [{"code": error.code, "status": error.status, "title": error.title} for error in errors]
