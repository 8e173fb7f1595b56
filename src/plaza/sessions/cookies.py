"""The cookie that carries a token, by OWASP's advice.

On https it is `__Host-plaza`: a browser takes a cookie of that prefix only from this very host, over https, for the
whole path, so that no other host of the domain can plant one. No script can read it, and other sites' pages cannot send
it with a POST. On plain http, where that prefix is not allowed, it is `plaza`.
"""

from __future__ import annotations

from typing import Final

from plaza.core.http.request import Request
from plaza.sessions.service import is_token

SECURE_NAME: Final = "__Host-plaza"
PLAIN_NAME: Final = "plaza"


def token_of(request: Request) -> str | None:
    """The token that a request brings, if it could be one of ours. Of several cookies the first that could."""
    prefix = f"{_name(request)}="
    given: str = request.headers.get("cookie", "")
    for pair in map(str.strip, given.split(";")):
        token = pair.removeprefix(prefix)
        if token != pair and is_token(token):
            return token
    return None


def caller(request: Request) -> str:
    """Whose a keyed request is: two guests of one address never share an answer."""
    return token_of(request) or ""


def set_cookie(request: Request, token: str, seconds: float) -> tuple[str, str]:
    return (
        "set-cookie",
        f"{_name(request)}={token}; Path=/; Max-Age={round(seconds)}; HttpOnly; SameSite=Lax{_secure(request)}",
    )


def clear_cookie(request: Request) -> tuple[str, str]:
    return "set-cookie", f"{_name(request)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{_secure(request)}"


def _name(request: Request) -> str:
    return SECURE_NAME if request.secure else PLAIN_NAME


def _secure(request: Request) -> str:
    return "; Secure" if request.secure else ""
