"""Errors as `application/problem+json` responses (RFC 9457).

A response tells the client what it can do, and nothing about the internals: an exception that is not a `PlazaError`
becomes a 500 with only a request id, and its trace goes to the log.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from plaza.core.errors import BadRequest, Forbidden, Invalid, PlazaError
from plaza.core.http.responses import Response
from plaza.core.root_path import with_root
from plaza.core.validation_messages import describe_violation

PROBLEM = "application/problem+json"

# Longer than any field name. What a client sent is never repeated without a limit.
MAX_ECHO_CHARACTERS = 200


class BadJson(BadRequest):
    title, code = "The body is not JSON", "bad_json"


class RequestTimedOut(PlazaError):
    status, title, code = 408, "Request timeout", "too_slow"


class UrlTooLong(PlazaError):
    status, title, code = 414, "The URL is too long", "address_too_long"


class UnsupportedMediaType(PlazaError):
    status, title, code = 415, "Unsupported media type", "unsupported_media_type"


class RangeNotSatisfiable(PlazaError):
    status, title, code = 416, "The range is outside the file", "range_not_satisfiable"


class HeadersTooLarge(PlazaError):
    status, title, code = 431, "The headers are too large", "headers_too_large"


class CrossOrigin(Forbidden):
    title, code = "Cross-site request refused", "cross_origin"


class InternalError(PlazaError):
    status, title, code = 500, "Internal error", "internal"


class Problem(msgspec.Struct, kw_only=True):
    """The body of an error response."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str


def problem(error: PlazaError, request_id: str) -> Response[Any]:
    """The response of an error."""
    document: dict[str, Any] = {
        "type": with_root(f"/docs#problem-{error.code}"),
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "request_id": request_id,
    }
    for name, value in error.extra.items():
        document.setdefault(name, value)
    return Response(document, status=error.status, headers=error_headers(error), media_type=PROBLEM)


def error_headers(error: PlazaError) -> list[tuple[str, str]]:
    """The headers that RFC 9110 requires for a status."""
    headers: list[tuple[str, str]] = []
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers.append(("retry-after", str(max(1, math.ceil(retry_after)))))
    if error.status == 401:
        headers.append(("www-authenticate", 'Bearer realm="plaza"'))
    if error.status == 405:
        headers.append(("allow", ", ".join(error.extra.get("allowed", ()))))
    if error.status == 416:
        headers.append(("content-range", f"bytes */{error.extra.get('size', '*')}"))
    if error.status in (408, 413):
        headers.append(("connection", "close"))  # the rest of the body is not read
    return headers


# msgspec ends a message with "… - at `$.groups[0].name`": the field, or the object that has a missing or unknown field.
_LOCATION = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_FIELD_NAME = re.compile(r"^Object (?:contains unknown|missing required) field `(.*)`$", re.DOTALL)


def invalid_from_msgspec(error: msgspec.ValidationError, parent: str = "") -> Invalid:
    """A 422 that names the field (`groups[0].name`), from msgspec's error. `parent` is put before the field."""
    text = str(error)
    location = _LOCATION.search(text)
    rule = text[: location.start()] if location else text
    path = parent + (location[1] if location else "")
    named = _FIELD_NAME.match(rule)
    if named:
        path = f"{path}.{named[1]}"
        rule = "Unknown field" if "unknown" in rule[:24] else "Missing field"
    field = path.lstrip(".")[:MAX_ECHO_CHARACTERS]
    detail = f"{rule}: {field}." if named else f"{describe_violation(rule)}."
    return Invalid(detail, **({"field": field} if field else {}))
