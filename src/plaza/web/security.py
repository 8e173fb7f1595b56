"""What keeps other sites from acting here in a visitor's name.

Three locks, each of which would do alone: the session's cookie is `SameSite=Lax`, browsers say where a request comes
from, and every form carries a token that only our own pages know. The token is made from the cookie's value, so that it
is worth nothing in another session, and checking it asks nobody.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from plaza.core.errors import Forbidden, Unauthenticated
from plaza.core.http.problem_details import CrossOrigin

HOME: Final = "/app"
_DOTS: Final = r"(?:\.|%2[eE]){1,2}(?:[/?#]|$)"  # a segment by which browsers climb
_LOCAL: Final = re.compile(rf"/app(?:/(?!{_DOTS})[^/?#\\\x00-\x20\x7f-\x9f]*)*(?:[?#][^\\\x00-\x20\x7f-\x9f]*)?")


class StaleForm(Forbidden):
    title, code = "This form is from an earlier session", "stale_form"


class Forms:
    """Makes and checks what only our own pages know."""

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), b"plaza forms", "sha256")
        self._tokens = lru_cache(8_192)(lambda session: self._digest("form", session))

    def token(self, session: str) -> str:
        """What every form of a session carries."""
        return self._tokens(session)

    def operation(self, session: str, once: str) -> str:
        """What a form that was filled in once does, however often it is sent: the same for the same form."""
        return self._digest("once", session, once)

    def require(self, headers: Mapping[str, str], session: str | None, shown: str) -> None:
        """Refuse what does not come from one of our own pages in this session."""
        require_own_page(headers)
        if session is None:
            raise Unauthenticated("Sign in to do this.")
        if not hmac.compare_digest(self.token(session).encode(), shown.encode()):
            raise StaleForm("You have signed in or out since this page was opened. Load it again and repeat.")

    def _digest(self, *parts: str) -> str:
        return hmac.digest(self._key, "\n".join(parts).encode("utf-8", "surrogatepass"), "sha256").hex()[:32]


def require_own_page(headers: Mapping[str, str]) -> None:
    """Refuse what a browser says comes from elsewhere. One that says nothing is left to the form's token."""
    said = headers.get("sec-fetch-site")
    silent = "origin" not in headers if said is None else said == "none"
    if not silent and not is_own_page(headers):
        raise CrossOrigin("Pages of other sites may not do this.")


def is_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a browser says that this comes from one of our own pages."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    scheme, _, place = headers.get("origin", "").partition("://")
    return bool(scheme) and place == headers.get("host")


def local(path: str | None, otherwise: str = HOME) -> str:
    """Where to go on: a page of ours, or else another. `//evil.example`, `/\\evil.example` and schemes are none."""
    return path if path is not None and _LOCAL.fullmatch(path) else otherwise
