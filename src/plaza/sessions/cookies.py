"""The session cookie, by OWASP's recommendations.

On https it is `__Host-plaza`: a browser accepts that prefix only from this host, over https and for the whole path,
so no other host of the domain can set it. Scripts cannot read it, and pages of other sites cannot send it with a
POST. On plain http, where that prefix is not allowed, it is `plaza`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plaza.core.http.request import Request
from plaza.core.sign_in_limits import DEVICE_SECONDS
from plaza.sessions.model import is_token

SECURE_NAME: Final = "__Host-plaza"
PLAIN_NAME: Final = "plaza"
# Shows that a user has signed in here before (`core/sign_in_limits.py`). It does not sign a user in.
DEVICE_SUFFIX: Final = "-device"


def token_from(request: Request) -> str | None:
    """Return the token of a request's cookie. Of several cookies the first with a valid form counts."""
    return next(filter(is_token, _values(request, _name(request))), None)


def device_from(request: Request) -> str:
    """Return the device cookie of a request; empty without one."""
    return next(_values(request, _name(request) + DEVICE_SUFFIX), "")


def _values(request: Request, name: str) -> Iterator[str]:
    header: str = request.headers.get("cookie", "")
    for pair in map(str.strip, header.split(";")):
        if pair.startswith(f"{name}="):
            yield pair.partition("=")[2]


def idempotency_caller(request: Request) -> str:
    """Return the caller of an idempotency key: two guests with one address never share a response."""
    return token_from(request) or ""


def set_cookie(request: Request, token: str, seconds: float) -> tuple[str, str]:
    return (
        "set-cookie",
        f"{_name(request)}={token}; Path=/; Max-Age={round(seconds)}; HttpOnly; SameSite=Lax{_secure(request)}",
    )


def set_device_cookie(request: Request, device: str) -> tuple[str, str]:
    name = _name(request) + DEVICE_SUFFIX
    attributes = f"Path=/; Max-Age={DEVICE_SECONDS}; HttpOnly; SameSite=Lax{_secure(request)}"
    return "set-cookie", f"{name}={device}; {attributes}"


def clear_cookie(request: Request) -> tuple[str, str]:
    return "set-cookie", f"{_name(request)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax{_secure(request)}"


def _name(request: Request) -> str:
    return SECURE_NAME if request.secure else PLAIN_NAME


def _secure(request: Request) -> str:
    return "; Secure" if request.secure else ""
