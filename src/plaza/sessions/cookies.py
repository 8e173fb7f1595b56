"""The session cookie, by OWASP's recommendations.

On https it is `__Host-plaza`: a browser accepts that prefix only from this host, over https and for the whole path,
so no other host of the domain can set it. Scripts cannot read it, and pages of other sites cannot send it with a
POST. On plain http, where that prefix is not allowed, it is `plaza`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from plaza.core.clients import ClientInfo
from plaza.core.http.request import Request
from plaza.core.sign_in_limits import DEVICE_SECONDS
from plaza.sessions.model import SessionClient, Visit, is_token
from plaza.sessions.offers import OFFER_SECONDS
from plaza.sessions.session_store import SessionStore

SECURE_NAME: Final = "__Host-plaza"
PLAIN_NAME: Final = "plaza"
# Shows that a user has signed in here before (`core/sign_in_limits.py`). It does not sign a user in.
DEVICE_SUFFIX: Final = "-device"
# Proves that the token was offered by Plaza and is not stored yet (`offers.py`).
OFFER_SUFFIX: Final = "-offer"


def token_from(request: Request) -> str | None:
    """Return the token of a request's cookie. Of several cookies the first with a valid form counts."""
    return next(filter(is_token, _values(request, _name(request))), None)


def client_from(request: Request) -> SessionClient:
    """Return what a request says about its session."""
    proof = next(_values(request, _name(request) + OFFER_SUFFIX), "")
    may_start = request.method not in ("GET", "HEAD")
    return SessionClient(token_from(request), proof, may_start, request.address)


def session_cookies(request: Request, visit: Visit, store: SessionStore) -> list[tuple[str, str]]:
    """Return the headers that give a client its session, if it is new."""
    if not visit.new:
        return []
    cookie = set_cookie(request, visit.token, store.limits.absolute_seconds)
    offer = _name(request) + OFFER_SUFFIX
    if visit.offered:
        return [cookie, _cookie(request, offer, store.offers.proof(visit.token), OFFER_SECONDS)]
    return [cookie, _cookie(request, offer, "", 0)] if any(_values(request, offer)) else [cookie]


def device_from(request: Request) -> str:
    """Return the device cookie of a request; empty without one."""
    return next(_values(request, _name(request) + DEVICE_SUFFIX), "")


def sign_in_client(request: Request) -> ClientInfo:
    """Return where a sign-in comes from, with its device cookie."""
    return replace(request.client, known_device=device_from(request))


def _values(request: Request, name: str) -> Iterator[str]:
    header: str = request.headers.get("cookie", "")
    for pair in map(str.strip, header.split(";")):
        if pair.startswith(f"{name}="):
            yield pair.partition("=")[2]


def idempotency_caller(request: Request) -> str:
    """Return the caller of an idempotency key: two guests with one address never share a response."""
    return token_from(request) or ""


def set_cookie(request: Request, token: str, seconds: float) -> tuple[str, str]:
    return _cookie(request, _name(request), token, seconds)


def set_device_cookie(request: Request, device: str) -> tuple[str, str]:
    return _cookie(request, _name(request) + DEVICE_SUFFIX, device, DEVICE_SECONDS)


def clear_cookie(request: Request) -> tuple[str, str]:
    return _cookie(request, _name(request), "", 0)


def _cookie(request: Request, name: str, value: str, seconds: float) -> tuple[str, str]:
    attributes = f"Path=/; Max-Age={round(seconds)}; HttpOnly; SameSite=Lax{_secure(request)}"
    return "set-cookie", f"{name}={value}; {attributes}"


def _name(request: Request) -> str:
    return SECURE_NAME if request.secure else PLAIN_NAME


def _secure(request: Request) -> str:
    return "; Secure" if request.secure else ""
