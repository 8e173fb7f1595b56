"""The headers of every response: security headers, and CORS for the origins of `PLAZA_CORS_ORIGINS`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from plaza.core.http.responses import EVENTS

Headers = list[tuple[bytes, bytes]]

# Responses with data are not pages: nothing in them may run, load or be framed. Pages send their own policy.
_SECURITY = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

# For Plaza's pages: only scripts, styles, fonts and requests of the same origin.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# For pages that show avatars and pictures of users, which may be on other hosts.
# `blob:` is for previews of files that the user has just chosen.
USER_CONTENT_POLICY = PAGE_POLICY.replace("img-src 'self' data:", "img-src 'self' data: blob: https:")

# Browsers cache a preflight this long, so a changed setting takes effect within ten minutes.
_PREFLIGHT_SECONDS = 600

# Response headers that scripts of other origins may read.
_EXPOSED = b"etag, idempotency-replayed, ratelimit, ratelimit-policy, retry-after, server-timing, x-request-id"

_LINE_BREAK = re.compile(rb"[\x00\r\n]")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+(?:\s*,\s*[A-Za-z0-9-]+)*")


@lru_cache(256)
def standard_headers(media_type: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of every response with a body of this type; None for no body."""
    if media_type is None:
        return _SECURITY
    # nginx buffers a response until it is complete, which would stop an event stream.
    own = ((b"x-accel-buffering", b"no"),) if media_type == EVENTS else ()
    return ((b"content-type", media_type.encode()), *_SECURITY, *own)


def with_headers(standard: Iterable[tuple[bytes, bytes]], own: Iterable[tuple[str, str]]) -> Headers:
    """The standard headers; `own` headers replace those of the same name."""
    return list(_merged(tuple(standard), tuple(own)))


@lru_cache(512)  # most routes with own headers always send the same ones
def _merged(standard: tuple[tuple[bytes, bytes], ...], own: tuple[tuple[str, str], ...]) -> Headers:
    given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in own]
    for name, value in given:
        if _LINE_BREAK.search(name) or _LINE_BREAK.search(value):
            raise ValueError(f"a line break in the header {name!r}")
    names = {name for name, _ in given}
    return [pair for pair in standard if pair[0] not in names] + given


class Cors:
    """The origins whose pages may send requests and read the responses."""

    def __init__(self, origins: Sequence[str]) -> None:
        self.allows_all = "*" in origins
        self.origins = frozenset(origin.rstrip("/") for origin in origins)

    def allows(self, origin: str) -> bool:
        return self.allows_all or origin in self.origins

    def headers(self, request: Mapping[str, str]) -> Headers:
        """The CORS headers of a response. `Vary` is sent for all origins, so that caches keep them apart."""
        origin = request.get("origin")
        if self.allows_all:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED)]
        if origin is None or origin not in self.origins:
            return [(b"vary", b"origin")]
        return [
            (b"vary", b"origin"),
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", _EXPOSED),
        ]

    def preflight(self, request: Mapping[str, str], allowed: str) -> Headers:
        """The headers of a preflight response. An allowed origin may send any request header."""
        if "access-control-request-method" not in request or not self.allows(request.get("origin", "")):
            return []
        headers: Headers = [
            (b"access-control-allow-methods", allowed.encode()),
            (b"access-control-max-age", b"%d" % _PREFLIGHT_SECONDS),
        ]
        names = request.get("access-control-request-headers", "")
        if _HEADER_NAMES.fullmatch(names):
            headers.append((b"access-control-allow-headers", names.encode()))
        return headers
