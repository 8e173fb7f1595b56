"""Errors as `application/problem+json` (RFC 9457). The one place that knows how an exception looks to a client.

A client learns what it can do about it, never how the inside looks: an exception that is no `PlazaError` becomes a
500 that gives only its request id, and its trace goes to the log.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from plaza.core.errors import BadRequest, Forbidden, Invalid, PlazaError
from plaza.core.http.responses import Response
from plaza.core.validation_messages import told

PROBLEM = "application/problem+json"

# Long enough for any field of ours; what a client sent is not echoed without end.
LONGEST_ECHO = 200


class BadJson(BadRequest):
    title, code = "The body is not JSON", "bad_json"


class TooSlow(PlazaError):
    status, title, code = 408, "The request did not arrive in time", "too_slow"


class AddressTooLong(PlazaError):
    status, title, code = 414, "The address is too long", "address_too_long"


class HeadTooLarge(PlazaError):
    status, title, code = 431, "The headers are too large", "headers_too_large"


class CrossOrigin(Forbidden):
    title, code = "Not for pages of other sites", "cross_origin"


class InternalError(PlazaError):
    status, title, code = 500, "Internal error", "internal"


class Problem(msgspec.Struct, kw_only=True):
    """An answer that is not a success."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str


def problem(error: PlazaError, request_id: str) -> Response[Any]:
    """The answer that an error makes."""
    document: dict[str, Any] = {
        "type": f"/docs#problem-{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "request_id": request_id,
    }
    for name, value in error.extra.items():
        document.setdefault(name, value)
    return Response(document, status=error.status, headers=headers_of(error), media_type=PROBLEM)


def headers_of(error: PlazaError) -> list[tuple[str, str]]:
    """The headers a status asks for by RFC 9110."""
    headers: list[tuple[str, str]] = []
    retry_after = getattr(error, "retry_after", None)
    if retry_after is not None:
        headers.append(("retry-after", str(max(1, math.ceil(retry_after)))))
    if error.status == 401:
        headers.append(("www-authenticate", 'Bearer realm="plaza"'))
    if error.status == 405:
        headers.append(("allow", ", ".join(error.extra.get("allowed", ()))))
    if error.status in (408, 413):
        headers.append(("connection", "close"))  # the rest of the body is not waited for
    return headers


# msgspec's "… - at `$.groups[0].name`"; and, where a field is missing or unknown, the object it belongs to.
_PLACE = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_NAMED = re.compile(r"^Object (?:contains unknown|missing required) field `(.*)`$", re.DOTALL)


def invalid(error: msgspec.ValidationError, where: str = "") -> Invalid:
    """What msgspec found, as a 422 that names the field: `groups[0].name`; `where` stands before it."""
    text = str(error)
    place = _PLACE.search(text)
    rule = text[: place.start()] if place else text
    path = where + (place[1] if place else "")
    named = _NAMED.match(rule)
    if named:
        path = f"{path}.{named[1]}"
        rule = "Unknown field" if "unknown" in rule[:24] else "Missing field"
    field = path.lstrip(".")[:LONGEST_ECHO]
    return Invalid(f"{rule}: {field}." if named else f"{told(rule)}.", **({"field": field} if field else {}))
