"""The cookie that carries a token, by OWASP's advice.

On https it is `__Host-plaza`: a browser takes a cookie of that prefix only from this very host, over https, for the
whole path, so that no other host of the domain can plant one. No script can read it, and other sites' pages cannot send
it with a POST. On plain http, where that prefix is not allowed, it is `plaza`.
"""

from __future__ import annotations

from typing import Final

from plaza.core.http.request import Call
from plaza.shop.sessions import is_token

SECURE_NAME: Final = "__Host-plaza"
PLAIN_NAME: Final = "plaza"


def token_of(call: Call) -> str | None:
    """The token that a request brings, if it could be one of ours. Of several cookies the first that could."""
    prefix = f"{_name(call)}="
    given: str = call.headers.get("cookie", "")
    for pair in map(str.strip, given.split(";")):
        token = pair.removeprefix(prefix)
        if token != pair and is_token(token):
            return token
    return None


def caller(call: Call) -> str:
    """Whose a keyed request is: two guests of one address never share an answer."""
    return token_of(call) or ""


def set_cookie(call: Call, token: str, seconds: float) -> tuple[str, str]:
    return (
        "set-cookie",
        f"{_name(call)}={token}; Path=/; Max-Age={round(seconds)}; HttpOnly; SameSite=Lax{_secure(call)}",
    )


def clear_cookie(call: Call) -> tuple[str, str]:
    return "set-cookie", f"{_name(call)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{_secure(call)}"


def _name(call: Call) -> str:
    return SECURE_NAME if call.secure else PLAIN_NAME


def _secure(call: Call) -> str:
    return "; Secure" if call.secure else ""
