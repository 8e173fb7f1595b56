"""The session cookie, by OWASP's recommendations.

On https it is `__Host-plaza`: a browser accepts that prefix only from this host, over https and for the whole path,
so no other host of the domain can set it. Scripts cannot read it, and pages of other sites cannot send it with a
POST. On plain http, where that prefix is not allowed, it is `plaza`.
"""

from __future__ import annotations

from typing import Final

from plaza.core.http.request import Request
from plaza.sessions.model import is_token

SECURE_NAME: Final = "__Host-plaza"
PLAIN_NAME: Final = "plaza"


def token_from(request: Request) -> str | None:
    """Return the token of a request's cookie. Of several cookies the first with a valid form counts."""
    prefix = f"{_name(request)}="
    header: str = request.headers.get("cookie", "")
    for pair in map(str.strip, header.split(";")):
        token = pair.removeprefix(prefix)
        if token != pair and is_token(token):
            return token
    return None


def idempotency_caller(request: Request) -> str:
    """Return the caller of an idempotency key: two guests with one address never share a response."""
    return token_from(request) or ""


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
