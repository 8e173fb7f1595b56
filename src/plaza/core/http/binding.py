"""From a handler's signature to the code that calls it, once per route, at start.

What a request costs is then a list of small functions, one per parameter, and nothing is looked up by name. Values are
checked by msgspec: the query as one Struct made for the route, so that an unknown parameter is refused like an unknown
field of a body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from plaza.core.errors import BadRequest, Invalid
from plaza.core.http.handler_signature import Parameter, Signature, allows_none, query_fields
from plaza.core.http.problem_details import BadJson, invalid
from plaza.core.http.request import Request
from plaza.core.http.router import decode_segment, split

Extract = Callable[[Request], Any]

# Far more than any route has; a query of thousands of parameters is an attack on the parser.
MOST_QUERY_PARAMETERS = 100


def extractors(signature: Signature, template: str, services: Mapping[type, Any]) -> list[Extract]:
    """One function per parameter that takes its value from a call."""
    order = [segment[1:-1] for segment in split(template) if segment.startswith("{")]
    return [_extract(parameter, order, services) for parameter in signature.parameters]


def _extract(parameter: Parameter, path_order: list[str], services: Mapping[type, Any]) -> Extract:
    name = parameter.name
    if parameter.kind == "path":
        return _from_path(parameter, path_order.index(name))
    if parameter.kind == "query":
        return lambda call: getattr(call.query, name)
    if parameter.kind == "fields":
        return _fields_of(parameter.type)
    if parameter.kind == "body":
        return _from_body(parameter.type)
    if parameter.kind == "actor":
        return lambda call: call.actor
    if parameter.kind == "call":
        return lambda call: call
    service = services[parameter.type]
    return lambda call: service


def _from_path(parameter: Parameter, index: int) -> Extract:
    kind, label, convert = parameter.type, parameter.label, msgspec.convert
    if kind is str:
        return lambda call: decode_segment(call.values[index])

    def extract(request: Request) -> Any:
        try:
            return convert(decode_segment(request.values[index]), kind, strict=False)
        except msgspec.ValidationError as error:
            raise invalid(error, label) from error

    return extract


def _fields_of(struct: Any) -> Extract:
    names = struct.__struct_fields__

    def extract(request: Request) -> Any:
        query = request.query
        return struct(**{name: getattr(query, name) for name in names})

    return extract


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a route that needs none: absent, or an empty object."""


def _from_body(kind: Any) -> Extract:
    if kind is bytes:
        return lambda call: call.body
    decode = body_decoder(kind)
    return lambda call: decode(call.body)


def body_decoder(kind: Any) -> Callable[[bytes], Any]:
    """JSON in, a checked value out. Where every field may be left out, so may the body."""
    decode = msgspec.json.Decoder(kind).decode
    absent = b"{}" if may_be_empty(kind) else b""

    def decoded(body: bytes) -> Any:
        try:
            return decode(body or absent)
        except msgspec.ValidationError as error:
            _require_json(body)  # the field is wrong, but is the rest of it JSON at all?
            wrong = invalid(error)
            wrong.extra.setdefault("field", "body")  # a list where an object belongs
            raise wrong from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _bad_json(body, error) from error

    return decoded


def may_be_empty(kind: Any) -> bool:
    """Whether an empty object is a good body: then so is none at all."""
    try:
        msgspec.convert({}, kind)
    except msgspec.ValidationError:
        return False
    return True


def _require_json(body: bytes) -> None:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(body, error) from error


def _bad_json(body: bytes, error: Exception) -> BadJson:
    if not body:
        return BadJson("A JSON body is needed.")
    if isinstance(error, RecursionError):
        return BadJson("The body is nested too deeply.")
    if isinstance(error, UnicodeDecodeError):
        return BadJson("The body is not valid UTF-8.")
    return BadJson(f"{error}.")


def query_binder(signature: Signature, any_query: bool) -> Callable[[bytes], Any]:
    """A function from the query string to a Struct with every query parameter of the route."""
    fields: list[tuple[str, Any, Any]] = []
    labels: dict[str, str] = {}
    for name, label, kind, default in query_fields(signature):
        fields.append((name, _optional(kind, default), default))
        labels[name] = label
    lists = {label for name, label, kind, _ in query_fields(signature) if _is_list(kind)}
    # A parameter is required or not whatever stands before it, hence keyword only.
    shape = msgspec.defstruct(
        "Query", fields, rename=labels, kw_only=True, frozen=True, forbid_unknown_fields=not any_query
    )
    try:
        nothing = shape()
    except TypeError:
        nothing = None
    convert = msgspec.convert

    def bind(text: bytes) -> Any:
        if not text and nothing is not None:
            return nothing
        try:
            return convert(_parse_query(text, lists), shape, strict=False)
        except msgspec.ValidationError as error:
            raise invalid(error) from error

    return bind


def _optional(kind: Any, default: Any) -> Any:
    return kind | None if default is None and not allows_none(_bare(kind)) else kind


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_list(kind: Any) -> bool:
    return get_origin(_bare(kind)) in (list, tuple, set, frozenset)


def _parse_query(text: bytes, lists: set[str]) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_QUERY_PARAMETERS,
        )
    except UnicodeDecodeError as error:
        raise BadRequest("The query is not valid UTF-8.") from error
    except ValueError as error:
        raise BadRequest("The query has too many parameters.") from error
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise Invalid(f"Given twice: {name}.", field=name)
        else:
            values[name] = value
    return values
