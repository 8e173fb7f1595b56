"""Functions that take a handler's arguments from a request, made once per route from its signature.

A request then costs one small function call per parameter, and nothing is looked up by name. msgspec checks the values.
The query becomes one Struct made for the route, so that an unknown parameter is refused like an unknown body field.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from plaza.core.errors import BadRequest, Invalid
from plaza.core.http.handler_signature import Parameter, Signature, allows_none, query_fields
from plaza.core.http.multipart import FormData, Multipart
from plaza.core.http.problem_details import BadJson, invalid_from_msgspec
from plaza.core.http.request import Request
from plaza.core.http.router import decode_segment, parameter_names

Extract = Callable[[Request], Any]

# Far more than any route has. A query with thousands of parameters is an attack on the parser.
MAX_QUERY_PARAMETERS = 100
# Most queries of a route are the same few, such as `limit=20`. Those with a cursor are longer.
CACHED_QUERIES = 64
MAX_CACHED_QUERY_BYTES = 60
# Values of path parameters, of all routes together: to check one costs a tenth of a small response. A UUID is shorter.
CACHED_SEGMENTS = 4_096
MAX_CACHED_SEGMENT_CHARACTERS = 40

_WHOLE_NUMBER = re.compile("-?[0-9]+")
_TOO_DEEP = "The body is nested too deeply."


def extractors(signature: Signature, template: str, services: Mapping[type, Any]) -> list[Extract]:
    """One function per parameter, which takes its value from a request."""
    path_names = parameter_names(template)
    return [_extractor(parameter, path_names, services) for parameter in signature.parameters]


def _extractor(parameter: Parameter, path_names: list[str], services: Mapping[type, Any]) -> Extract:
    name = parameter.name
    if parameter.kind == "path":
        return _from_path(parameter, path_names.index(name))
    if parameter.kind == "query":
        return lambda request: getattr(request.query, name)
    if parameter.kind == "query_struct":
        return _from_query_struct(parameter.type)
    if parameter.kind == "body":
        return _from_body(parameter.type)
    if parameter.kind == "actor":
        return lambda request: request.actor
    if parameter.kind == "request":
        return lambda request: request
    service = services[parameter.type]
    return lambda request: service


def _from_path(parameter: Parameter, index: int) -> Extract:
    kind, label, convert = parameter.type, parameter.label, msgspec.convert
    if kind is str:
        return lambda request: decode_segment(request.path_values[index])

    is_number = _without_metadata(kind) is int

    def parse(segment: str) -> Any:
        text = decode_segment(segment)
        if is_number and not _WHOLE_NUMBER.fullmatch(text):  # msgspec takes `1e3` for 1000, a second name of a thing
            raise Invalid("Must be a whole number.", field=label)
        try:
            return convert(text, kind, strict=False)
        except msgspec.ValidationError as error:
            raise invalid_from_msgspec(error, label) from error

    def extract(request: Request) -> Any:
        segment = request.path_values[index]
        return _parse_cached(parse, segment) if len(segment) <= MAX_CACHED_SEGMENT_CHARACTERS else parse(segment)

    return extract


@lru_cache(CACHED_SEGMENTS)
def _parse_cached(parse: Callable[[str], Any], segment: str) -> Any:
    return parse(segment)


def _from_query_struct(struct: Any) -> Extract:
    names = struct.__struct_fields__

    def extract(request: Request) -> Any:
        query = request.query
        return struct(**{name: getattr(query, name) for name in names})

    return extract


class EmptyBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a route that takes none: absent, or an empty object."""


def _from_body(kind: Any) -> Extract:
    if kind is bytes:
        return lambda request: request.body
    if get_origin(kind) is Multipart:
        (fields,) = get_args(kind)
        return lambda request: Multipart.from_form(request.form or FormData(), fields)
    decode = body_decoder(kind)
    return lambda request: decode(request.body)


def body_decoder(kind: Any) -> Callable[[bytes], Any]:
    """A function that decodes and checks a JSON body. If every field is optional, so is the body."""
    decode = msgspec.json.Decoder(kind).decode
    default = b"{}" if allows_empty_body(kind) else b""

    def decode_body(body: bytes) -> Any:
        try:
            return decode(body or default)
        except msgspec.ValidationError as error:
            value = _read_json(body)  # msgspec may report a wrong field before it reaches a syntax error
            return _convert_numbers(value, kind, error)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _bad_json(body, error) from error

    return decode_body


def allows_empty_body(kind: Any) -> bool:
    """Whether an empty object is a valid body. Then no body is valid too."""
    try:
        msgspec.convert({}, kind)
    except msgspec.ValidationError:
        return False
    return True


def _convert_numbers(value: Any, kind: Any, error: msgspec.ValidationError) -> Any:
    """The value of a body in which `2.0` stands for `2`, as JSON Schema allows. Raises `Invalid` for other errors."""
    if "got `float`" in str(error):
        try:
            return msgspec.convert(_with_integers(value), kind)
        except msgspec.ValidationError as other:
            error = other
        except RecursionError as deep:
            raise BadJson(_TOO_DEEP) from deep
    invalid = invalid_from_msgspec(error)
    invalid.extra.setdefault("field", "body")  # the body is a list instead of an object
    raise invalid from error


def _with_integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _with_integers(item) for name, item in value.items()}
    return [_with_integers(item) for item in value] if isinstance(value, list) else value


def _read_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(body, error) from error


def _bad_json(body: bytes, error: Exception) -> BadJson:
    if not body:
        return BadJson("A JSON body is required.")
    if isinstance(error, RecursionError):
        return BadJson(_TOO_DEEP)
    if isinstance(error, UnicodeDecodeError):
        return BadJson("The body is not valid UTF-8.")
    return BadJson(f"{error}.")


@cache
def query_binder(signature: Signature, ignores_unknown: bool) -> Callable[[bytes], Any]:
    """A function that turns the query string into a Struct with every query parameter of the route."""
    fields: list[tuple[str, Any, Any]] = []
    labels: dict[str, str] = {}
    for name, label, kind, default in query_fields(signature):
        fields.append((name, _optional(kind, default), default))
        labels[name] = label
    lists = {label for name, label, kind, _ in query_fields(signature) if _is_list(kind)}
    without_null = {label for name, label, kind, _ in query_fields(signature) if not _accepts_text(kind, "null")}
    # Keyword-only, because a required parameter may come after an optional one.
    struct = msgspec.defstruct(
        "Query", fields, rename=labels, kw_only=True, frozen=True, forbid_unknown_fields=not ignores_unknown
    )
    try:
        defaults = struct()
    except TypeError:
        defaults = None
    convert = msgspec.convert

    def parse(text: bytes) -> Any:
        try:
            values = _parse_query(text, lists)
            _refuse_null(values, without_null)
            return convert(values, struct, strict=False)
        except msgspec.ValidationError as error:
            raise invalid_from_msgspec(error) from error

    if lists:
        return parse  # a handler may change a list
    parse_cached = lru_cache(CACHED_QUERIES)(parse)

    def bind(text: bytes) -> Any:
        if not text and defaults is not None:
            return defaults
        return parse_cached(text) if len(text) <= MAX_CACHED_QUERY_BYTES else parse(text)

    return bind


def _refuse_null(values: dict[str, Any], parameters: set[str]) -> None:
    """Refuse the text `null`, which msgspec takes for a missing value."""
    for name in parameters & values.keys():
        if str(values[name]).lower() == "null":
            raise Invalid("`null` is not a value of this parameter. Leave it out instead.", field=name)


def _accepts_text(kind: Any, text: str) -> bool:
    """Whether a text is a value of a type, other than None."""
    inner = _without_metadata(kind)
    kinds = get_args(inner) if get_origin(inner) in (Union, UnionType) else (inner,)
    for each in kinds:
        if each is not NoneType:
            with contextlib.suppress(msgspec.ValidationError):
                msgspec.convert(text, each, strict=False)
                return True
    return False


def _optional(kind: Any, default: Any) -> Any:
    return kind | None if default is None and not allows_none(_without_metadata(kind)) else kind


def _without_metadata(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_list(kind: Any) -> bool:
    return get_origin(_without_metadata(kind)) in (list, tuple, set, frozenset)


def _parse_query(text: bytes, lists: set[str]) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_QUERY_PARAMETERS,
        )
    except UnicodeDecodeError as error:
        raise BadRequest("The query is not valid UTF-8.") from error
    except ValueError as error:
        raise BadRequest(f"The query has more than {MAX_QUERY_PARAMETERS} parameters.") from error
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise Invalid(f"Duplicate parameter: {name}. Send it once.", field=name)
        else:
            values[name] = value
    return values
