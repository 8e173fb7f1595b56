"""The headers every answer has: against sniffing and framing, and for browsers of origins that a setting names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from plaza.core.http.responses import EVENTS

Headers = list[tuple[bytes, bytes]]

# Data is never a page: nothing in it may run, load or be framed. A page brings a policy of its own.
_SECURITY = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

# What our own pages may do: their own scripts, styles and calls, and nothing from elsewhere.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

# A browser may keep a preflight this long: a changed setting is then noticed within ten minutes.
_PREFLIGHT_SECONDS = 600

# What scripts may read of an answer from another origin.
_EXPOSED = b"etag, idempotency-replayed, ratelimit, ratelimit-policy, retry-after, server-timing, x-request-id"

_BREAKS = re.compile(rb"[\x00\r\n]")
_HEADER_NAMES = re.compile(r"[A-Za-z0-9-]+(?:\s*,\s*[A-Za-z0-9-]+)*")


@lru_cache(256)
def standard_headers(media_type: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """Every answer's headers, for a body of this type, or for none."""
    if media_type is None:
        return _SECURITY
    # Proxies keep an answer until it is whole unless they are told not to; that would be the end of an event stream.
    own = ((b"x-accel-buffering", b"no"),) if media_type == EVENTS else ()
    return ((b"content-type", media_type.encode()), *_SECURITY, *own)


def with_headers(standard: Iterable[tuple[bytes, bytes]], own: Iterable[tuple[str, str]]) -> Headers:
    """An answer's own headers replace the standard ones of the same name."""
    return list(_merged(tuple(standard), tuple(own)))


@lru_cache(512)  # most routes that have headers of their own send the same ones every time
def _merged(standard: tuple[tuple[bytes, bytes], ...], own: tuple[tuple[str, str], ...]) -> Headers:
    given = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in own]
    for name, value in given:
        if _BREAKS.search(name) or _BREAKS.search(value):
            raise ValueError(f"a line break in the header {name!r}")
    names = {name for name, _ in given}
    return [pair for pair in standard if pair[0] not in names] + given


class Cors:
    """Which origins' pages may call us and read the answer."""

    def __init__(self, origins: Sequence[str]) -> None:
        self.anyone = "*" in origins
        self.origins = frozenset(origin.rstrip("/") for origin in origins)

    def allows(self, origin: str) -> bool:
        return self.anyone or origin in self.origins

    def headers(self, request: Mapping[str, str]) -> Headers:
        """For any answer. Caches are told that it differs by origin, also where this one is not allowed."""
        origin = request.get("origin")
        if self.anyone:
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
        """What a browser asks before it calls. The origin is trusted, so any header it names is fine."""
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
