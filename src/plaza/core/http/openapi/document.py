"""The whole document: all operations by path, and what they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from plaza.core.errors import PlazaError
from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.openapi.errors import HEADERS, problem_response, shared_errors
from plaza.core.http.openapi.operations import CREDENTIALS, describe_operation, request_types, response_types
from plaza.core.http.openapi.schemas import Schemas
from plaza.core.http.problem_details import Problem
from plaza.core.http.routes import Routes
from plaza.core.root_path import with_root
from plaza.core.settings import Settings


class AnyServices(dict[type, Any]):
    """Stands for services that are not built: routes are only described, and never called."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, type) and isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)

    def __missing__(self, kind: type) -> None:
        return None


def describe_routes(groups: Sequence[Routes], version: str) -> dict[str, Any]:
    """The OpenAPI document of routes without an application."""
    bound_routes = [BoundRoute(route, AnyServices(), Settings()) for group in groups for route in group.routes]
    return describe(groups, bound_routes, version)


def describe(groups: Sequence[Routes], routes: Iterable[BoundRoute], version: str) -> dict[str, Any]:
    """The OpenAPI document of all routes."""
    listed = [bound for bound in routes if bound.route.in_openapi]
    schemas = Schemas(
        [kind for bound in listed for kind in request_types(bound)],
        [Problem, *(kind for bound in listed for kind in response_types(bound))],
    )
    paths: dict[str, Any] = {}
    for bound in listed:
        paths.setdefault(bound.route.template, {})[bound.route.method.lower()] = describe_operation(bound, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Plaza", "version": version, "description": "A community platform back end on Valkey."},
        "servers": [{"url": with_root("") or "/"}],
        "tags": _tags(groups),
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": CREDENTIALS,
            "responses": {error.__name__: problem_response(error) for error in shared_errors().values()},
            "headers": HEADERS,
        },
        "x-problems": _problems(),
    }


def _tags(groups: Sequence[Routes]) -> list[dict[str, str]]:
    about: dict[str, str] = {}
    for group in groups:
        if any(route.in_openapi for route in group.routes):
            about[group.tag] = about.get(group.tag) or group.about
    return [{"name": tag, "description": text} for tag, text in about.items()]


def _problems() -> list[dict[str, Any]]:
    """Every `code` of a problem, for clients that handle them and for the documentation page."""
    errors = sorted(PlazaError.by_code.values(), key=lambda error: (error.status, error.code))
    return [{"code": error.code, "status": error.status, "title": error.title} for error in errors]
