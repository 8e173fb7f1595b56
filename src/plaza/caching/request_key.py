"""Which parts of a request select a page. The application does not see the others, so no page can contain them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, MutableMapping
from fnmatch import translate
from typing import Any, Final
from urllib.parse import unquote_to_bytes

Scope = MutableMapping[str, Any]
RawHeaders = list[tuple[bytes, bytes]]

_CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key"))
# The application is told only whether it may compress: browsers list encodings in many ways.
_GZIP: Final = re.compile(rb"(?:^|,)\s*gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))|,|$)")


class RequestKey:
    """Selects pages by scheme, host, path, query, the headers in `vary`, and whether the client takes gzip.

    `ignored_parameters` of the query and `ignored_cookies` select nothing; `cookies` select another page each. Names
    may contain `*`: `utm_*`. `extra` returns more of what selects a page, such as a tenant. A request with credentials,
    or with a cookie that is not named here, is personal: its response is not cached.
    """

    def __init__(
        self,
        *,
        vary: Iterable[str] = (),
        ignored_parameters: Iterable[str] = (),
        cookies: Iterable[str] = (),
        ignored_cookies: Iterable[str] = (),
        extra: Callable[[Scope], str] | None = None,
    ) -> None:
        self.vary = tuple(sorted(header.lower() for header in vary))
        self._vary_names = [name.encode("latin-1") for name in self.vary]
        self._ignored_parameters = _any_of(ignored_parameters)
        self._cookies = _any_of(cookies)
        self._ignored_cookies = _any_of(ignored_cookies)
        self._extra = extra

    @property
    def selects_by_cookie(self) -> bool:
        return self._cookies is not None

    def normalized(self, scope: Scope) -> Scope:
        """Return a request with nothing but what selects its page, and other cookies, which make it personal."""
        headers: RawHeaders = []
        cookies: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"cookie":
                cookies += self._without_ignored_cookies(value)
            elif name != b"accept-encoding" or name in self._vary_names:
                headers.append((name, value))
            elif _GZIP.search(value.lower()):
                headers.append((name, b"gzip"))
        if cookies:  # several headers become one, so that all of them select the page
            headers.append((b"cookie", b"; ".join(cookies)))
        return {**scope, "headers": headers, "query_string": self._without_ignored_parameters(scope["query_string"])}

    def is_personal(self, scope: Scope) -> bool:
        """Return whether a normalized request has credentials, or a cookie that selects no page."""
        for name, value in scope["headers"]:
            if name in _CREDENTIALS or (name == b"cookie" and not self._all_select(value)):
                return True
        return False

    def text(self, scope: Scope, headers: dict[bytes, bytes]) -> bytes:
        """Return the same text for requests with the same page. The host is part of it: a page may show its address."""
        path = scope.get("raw_path") or scope["path"].encode()
        parts = [scope.get("scheme", "http").encode(), headers.get(b"host", b""), path, scope["query_string"]]
        parts += [name + b": " + headers.get(name, b"") for name in self._vary_names]
        if b"accept-encoding" in headers and b"accept-encoding" not in self._vary_names:
            parts.append(b"gzip")
        if self._cookies is not None:
            parts.append(b"; ".join(sorted(_cookies(headers.get(b"cookie", b"")))))
        if self._extra is not None:
            parts.append(self._extra(scope).encode())
        return b"\n".join(parts)

    def _without_ignored_parameters(self, query: bytes) -> bytes:
        ignored = self._ignored_parameters
        if ignored is None or not query:
            return query
        return b"&".join(part for part in query.split(b"&") if not ignored.fullmatch(_parameter_name(part)))

    def _without_ignored_cookies(self, header: bytes) -> list[bytes]:
        ignored = self._ignored_cookies
        return [each for each in _cookies(header) if ignored is None or not ignored.fullmatch(_cookie_name(each))]

    def _all_select(self, header: bytes) -> bool:
        cookies = self._cookies
        return cookies is not None and all(cookies.fullmatch(_cookie_name(cookie)) for cookie in _cookies(header))


def _any_of(patterns: Iterable[str]) -> re.Pattern[str] | None:
    alternatives = [translate(pattern) for pattern in patterns]
    return re.compile("|".join(alternatives)) if alternatives else None


def _parameter_name(part: bytes) -> str:
    return unquote_to_bytes(part.partition(b"=")[0].replace(b"+", b" ")).decode("latin-1")


def _cookies(header: bytes) -> list[bytes]:
    return [cookie for part in header.split(b";") if (cookie := part.strip())]


def _cookie_name(cookie: bytes) -> str:
    return cookie.partition(b"=")[0].strip().decode("latin-1")
