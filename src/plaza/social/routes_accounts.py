"""HTTP in and out of accounts: registration, sign-in, sessions."""

from __future__ import annotations

import msgspec

from plaza.core.auth import Actor
from plaza.core.http.access import AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.idempotency import REPLAYED
from plaza.social.accounts import Accounts
from plaza.social.model import PasswordChange, PasswordLogin, RefreshRequest, Registration, SignedIn, User

# Tries are counted by the name that is tried, which the service knows: hence no limit of the routes' own.
route = Routes("accounts", about="Registration, sign-in and sessions.")


class Logout(msgspec.Struct, forbid_unknown_fields=True):
    """Which session ends; without one, all of the caller's."""

    refresh_token: str | None = None


class LoggedOut(msgspec.Struct):
    logged_out: bool = True


@route.post("/auth/register", access=PUBLIC, status=201, limit=None, idempotent="by_handler")
async def register(body: Registration, request: Request, accounts: Accounts) -> Response[SignedIn]:
    """Make an account and sign in. With an `Idempotency-Key`, the same again signs in once more."""
    signed_in, again = await accounts.register_once(body, request.headers.get("idempotency-key"), request.address)
    return Response(signed_in, headers=[REPLAYED] if again else [])


@route.post("/auth/login", access=PUBLIC, limit=None)
async def login(body: PasswordLogin, request: Request, accounts: Accounts) -> SignedIn:
    """Sign in by name and password."""
    return await accounts.login(body, request.address)


@route.post("/auth/refresh", access=PUBLIC)
async def refresh(body: RefreshRequest, accounts: Accounts) -> SignedIn:
    """Exchange a refresh token for the next one. Shown a second time, it ends its session."""
    return await accounts.refresh(body.refresh_token)


@route.post("/auth/logout", access=PUBLIC)
async def logout(actor: Actor | None, body: Logout, accounts: Accounts) -> LoggedOut:
    """End the session of a refresh token, or all of the caller's."""
    await accounts.logout(actor, body.refresh_token)
    return LoggedOut()


@route.post("/auth/password", access=USER, limit=None)
async def change_password(actor: Actor, body: PasswordChange, request: Request, accounts: Accounts) -> SignedIn:
    """Change the password. Every other session ends."""
    return await accounts.change_password(actor, body, request.address)


@route.get("/whoami", access=AUTHENTICATED)
async def whoami(actor: Actor, accounts: Accounts) -> User:
    """The caller's own profile."""
    return await accounts.whoami(actor)


@route.post("/whoami", access=AUTHENTICATED)
async def whoami_posted(actor: Actor, accounts: Accounts) -> User:
    """The caller's own profile."""
    return await accounts.whoami(actor)
