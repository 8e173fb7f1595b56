"""What a handler takes and gives, read from its signature once, at start."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT

from plaza.core.http.request import Request
from plaza.core.http.responses import Event, Response
from plaza.core.http.router import split
from plaza.core.http.routes import Named, Route

Kind = Literal["path", "query", "fields", "body", "actor", "call", "service"]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str  # in Python
    label: str  # in the path or the query
    kind: Kind
    type: Any
    default: Any = NODEFAULT

    @property
    def required(self) -> bool:
        return self.default is NODEFAULT


@dataclass(frozen=True, slots=True)
class Signature:
    """What a handler takes and gives."""

    parameters: tuple[Parameter, ...]
    answer: Any  # the type of a successful body; None for nothing
    streams: bool  # the answer comes in pieces

    def of_kind(self, *kinds: Kind) -> list[Parameter]:
        return [parameter for parameter in self.parameters if parameter.kind in kinds]

    def body(self) -> Any:
        """The body's type; None where the route takes none."""
        return next((parameter.type for parameter in self.of_kind("body")), None)


def read_signature(route: Route, services: Mapping[type, Any]) -> Signature:
    """Read a handler's signature. What cannot be supplied is refused now, with the route's name."""
    hints = get_type_hints(route.handler, include_extras=True)
    in_path = {segment[1:-1] for segment in split(route.template) if segment.startswith("{")}
    parameters = []
    for name, parameter in inspect.signature(route.handler).parameters.items():
        assert name in hints, f"{_title(route)}: {name} has no type"
        kind = _kind(name, hints[name], in_path, services)
        default = NODEFAULT if parameter.default is inspect.Parameter.empty else parameter.default
        if kind in ("path", "query"):
            _require_readable(route, name, hints[name])
        parameters.append(Parameter(name, _label(name, hints[name]), kind, hints[name], default))
    needs_actor = any(not allows_none(parameter.type) for parameter in parameters if parameter.kind == "actor")
    assert not (needs_actor and route.access.is_open), f"{_title(route)}: `actor` may be None where access is open"
    assert _is_async(route.handler), f"{_title(route)}: a handler is async"
    assert not (route.safe and "body" in hints), f"{_title(route)}: GET has no body"
    missing = in_path - {parameter.label for parameter in parameters if parameter.kind == "path"}
    assert not missing, f"{_title(route)}: no parameter takes {missing}"
    answer, streams = _answer(hints.get("return"))
    return Signature(tuple(parameters), answer, streams or inspect.isasyncgenfunction(route.handler))


def _is_async(handler: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler)


def _title(route: Route) -> str:
    return f"{route.method} {route.template} ({route.handler.__module__}.{route.handler.__qualname__})"


def _kind(name: str, hint: Any, in_path: set[str], services: Mapping[type, Any]) -> Kind:
    if name in in_path:
        return "path"
    if name == "body":
        return "body"
    if name == "actor":
        return "actor"
    if hint is Request:
        return "call"
    if isinstance(hint, type) and hint in services:
        return "service"
    return "fields" if _is_struct(hint) else "query"


def _require_readable(route: Route, name: str, hint: Any) -> None:
    """A service nobody provides would otherwise pass for a strange query parameter."""
    try:
        kind = msgspec.inspect.type_info(hint)
    except TypeError as error:
        raise AssertionError(f"{_title(route)}: {name}: {error}") from error
    assert not isinstance(kind, msgspec.inspect.CustomType), f"{_title(route)}: {name}: no such service is provided"


def _label(name: str, hint: Any) -> str:
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, Named):
            return mark.name
    return name.rstrip("_")  # `from_` is how Python says `from`


def _answer(hint: Any) -> tuple[Any, bool]:
    origin = get_origin(hint)
    if hint is Response:
        return Any, False
    if origin is Response:
        return _answer(get_args(hint)[0])
    if isinstance(origin, type) and issubclass(origin, AsyncIterator):
        return _data_of(get_args(hint)[0]), True
    return (None if hint is type(None) else hint), False


def _data_of(item: Any) -> Any:
    """What an item of a stream says: of an `Event[Tick]` the `Tick`."""
    if item is Event:
        return Any
    return get_args(item)[0] if get_origin(item) is Event else item


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def allows_none(hint: Any) -> bool:
    return get_origin(hint) in (types.UnionType, typing.Union) and type(None) in get_args(hint)


def query_fields(signature: Signature) -> list[tuple[str, str, Any, Any]]:
    """Every query parameter: its name in Python, in the query, its type and its default."""
    found: list[tuple[str, str, Any, Any]] = []
    for parameter in signature.of_kind("query", "fields"):
        if parameter.kind == "query":
            found.append((parameter.name, parameter.label, parameter.type, parameter.default))
        else:
            fields = msgspec.structs.fields(parameter.type)
            found += [(field.name, field.encode_name, field.type, _default_of(field)) for field in fields]
    return found


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
