"""Protects forms against other sites (CSRF), and redirects against other hosts.

Three checks, each sufficient alone: the session cookie is `SameSite=Lax`, browsers state where a request comes from,
and every form carries a token that only our pages contain. The token is derived from the session cookie, so it is
useless in another session, and checking it needs no round trip.
"""

from __future__ import annotations

import hmac
import re
import string
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from plaza.core.errors import Forbidden, Unauthenticated
from plaza.core.http.same_origin import require_same_origin

HOME: Final = "/app"
_DOTS: Final = r"(?:\.|%2[eE]){1,2}(?:[/?#]|$)"  # a `.` or `..` segment, which browsers resolve
_LOCAL: Final = re.compile(rf"/app(?:/(?!{_DOTS})[^/?#\\\x00-\x20\x7f-\x9f]*)*(?:[?#][^\\\x00-\x20\x7f-\x9f]*)?")


class StaleForm(Forbidden):
    title, code = "This form is from an earlier session", "stale_form"


class FormTokens:
    """Creates and checks form tokens, and derives idempotency keys from forms."""

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), b"plaza forms", "sha256")
        self._tokens = lru_cache(8_192)(lambda session: self._digest("form", session))

    def token(self, session: str) -> str:
        """The token that every form of a session carries."""
        return self._tokens(session)

    def idempotency_key(self, session: str, form: str) -> str:
        """A key that is the same for the same form of the same session."""
        return self._digest("once", session, form)

    def require(self, headers: Mapping[str, str], session: str | None, token: str) -> None:
        """Refuse a form that was not created by one of our pages in this session."""
        require_same_origin(headers)
        if session is None:
            raise Unauthenticated("Sign in to do this.")
        if not hmac.compare_digest(self.token(session).encode(), token.encode()):
            raise StaleForm("You have signed in or out since this page was loaded. Reload it and try again.")

    def _digest(self, *parts: str) -> str:
        return hmac.digest(self._key, "\n".join(parts).encode("utf-8", "surrogatepass"), "sha256").hex()[:32]


def local_path(path: str | None, default: str = HOME) -> str:
    """Return `path` if it is a page under `/app`, else `default`. `//evil.example` and `/\\evil.example` are not."""
    if path is None or not _LOCAL.fullmatch(path):
        return default
    # A header can only carry ASCII.
    return path if path.isascii() else quote(path, safe=string.punctuation, errors="replace")
