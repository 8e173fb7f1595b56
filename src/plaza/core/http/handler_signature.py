"""The parameters and the result of a handler, read from its signature once."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

from plaza.core.http.request import Request
from plaza.core.http.responses import Response, ServerSentEvent
from plaza.core.http.router import parameter_names
from plaza.core.http.routes import ParameterName, Route

Kind = Literal["path", "query", "query_struct", "body", "actor", "request", "service"]


class Parameter(Struct, frozen=True):
    """A parameter of a handler."""

    name: str  # in Python
    label: str  # in the path or the query
    kind: Kind
    type: Any
    default: Any = NODEFAULT


class Signature(Struct, frozen=True, eq=False):
    """The parameters of a handler and the type of its result. It equals only itself: defaults can be lists."""

    parameters: tuple[Parameter, ...]
    result: Any  # the type of a successful body; None for no body
    streams: bool  # the body is sent in chunks

    def of_kind(self, *kinds: Kind) -> list[Parameter]:
        """The parameters of these kinds."""
        return [parameter for parameter in self.parameters if parameter.kind in kinds]

    def parameters_of_request(self) -> list[Parameter]:
        """The parameters in the path and in the query."""
        return self.of_kind("path", "query", "query_struct")

    def body(self) -> Any:
        """The body's type; None if the route takes no body."""
        return next((parameter.type for parameter in self.of_kind("body")), None)


def read_signature(route: Route, services: Mapping[type, Any]) -> Signature:
    """Read a handler's signature. A mistake raises `AssertionError` with the route's name."""
    hints = handler_types(route.handler).values()
    return _read_signature(route, frozenset(hint for hint in hints if isinstance(hint, type) and hint in services))


@cache  # tests start many applications with the same routes
def _read_signature(route: Route, services: frozenset[type]) -> Signature:
    hints = handler_types(route.handler)
    in_path = set(parameter_names(route.template))
    parameters = []
    for name, parameter in inspect.signature(route.handler).parameters.items():
        assert name in hints, f"{_title(route)}: {name} has no type"
        kind = _kind(name, hints[name], in_path, services)
        default = NODEFAULT if parameter.default is inspect.Parameter.empty else parameter.default
        if kind in ("path", "query"):
            _require_convertible(route, name, hints[name])
        parameters.append(Parameter(name, _label(name, hints[name]), kind, hints[name], default))
    needs_actor = any(not allows_none(parameter.type) for parameter in parameters if parameter.kind == "actor")
    assert not (needs_actor and route.access.is_open), f"{_title(route)}: `actor` may be None where access is open"
    assert _is_async(route.handler), f"{_title(route)}: a handler must be async"
    assert not (route.safe and "body" in hints), f"{_title(route)}: GET has no body"
    missing = in_path - {parameter.label for parameter in parameters if parameter.kind == "path"}
    assert not missing, f"{_title(route)}: no parameter takes {missing}"
    result, streams = _result(hints.get("return"))
    return Signature(tuple(parameters), result, streams or inspect.isasyncgenfunction(route.handler))


@cache
def handler_types(handler: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a handler's parameters. Each one is evaluated from text, half a millisecond per handler."""
    return get_type_hints(handler, include_extras=True)


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct, which many handlers have in common: 5 ms each time."""
    return msgspec.structs.fields(struct)


def _is_async(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)


def _title(route: Route) -> str:
    return f"{route.method} {route.template} ({route.handler.__module__}.{route.handler.__qualname__})"


def _kind(name: str, hint: Any, in_path: set[str], services: frozenset[type]) -> Kind:
    if name in in_path:
        return "path"
    if name == "body":
        return "body"
    if name == "actor":
        return "actor"
    if hint is Request:
        return "request"
    if isinstance(hint, type) and hint in services:
        return "service"
    return "query_struct" if _is_struct(hint) else "query"


class MissingService(AssertionError):
    """A handler takes a service that does not exist."""


def _require_convertible(route: Route, name: str, hint: Any) -> None:
    """Refuse a type that msgspec cannot read. Otherwise an unknown service would become a query parameter."""
    try:
        kind = msgspec.inspect.type_info(hint)
    except TypeError as error:
        raise AssertionError(f"{_title(route)}: {name}: {error}") from error
    if isinstance(kind, msgspec.inspect.CustomType):
        raise MissingService(f"{_title(route)}: {name}: no such service is provided")


def _label(name: str, hint: Any) -> str:
    for annotation in getattr(hint, "__metadata__", ()):
        if isinstance(annotation, ParameterName):
            return annotation.name
    return name.rstrip("_")  # `from` is a keyword in Python, so the parameter is called `from_`


def _result(hint: Any) -> tuple[Any, bool]:
    origin = get_origin(hint)
    if hint is Response:
        return Any, False
    if origin is Response:
        return _result(get_args(hint)[0])
    if isinstance(origin, type) and issubclass(origin, AsyncIterator):
        return _item_type(get_args(hint)[0]), True
    if origin is ServerSentEvent:
        return _item_type(hint), True
    return (None if hint is type(None) else hint), False


def _item_type(item: Any) -> Any:
    """The type of a stream's data: `Tick` for `ServerSentEvent[Tick]`."""
    if item is ServerSentEvent:
        return Any
    return get_args(item)[0] if get_origin(item) is ServerSentEvent else item


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def allows_none(hint: Any) -> bool:
    """Whether a type is a union with None."""
    return get_origin(hint) in (types.UnionType, typing.Union) and type(None) in get_args(hint)


def query_fields(signature: Signature) -> list[tuple[str, str, Any, Any]]:
    """Each query parameter: its name in Python, its name in the query, its type and its default."""
    found: list[tuple[str, str, Any, Any]] = []
    for parameter in signature.of_kind("query", "query_struct"):
        if parameter.kind == "query":
            found.append((parameter.name, parameter.label, parameter.type, parameter.default))
        else:
            fields = _fields(parameter.type)
            found += [(field.name, field.encode_name, field.type, _default(field)) for field in fields]
    return found


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
