"""HTTP routes of accounts: registration, sign-in, sessions."""

from __future__ import annotations

import msgspec

from plaza.core.auth import Actor
from plaza.core.domain import InvalidPasskey, MfaRequired, WrongCode
from plaza.core.errors import TooFast
from plaza.core.http.access import AUTHENTICATED, PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.idempotency import REPLAYED, KeyReused
from plaza.core.password_strength import WeakPassword
from plaza.sessions.cookies import set_device_cookie, sign_in_client
from plaza.social.accounts import Accounts
from plaza.social.credentials import Credentials
from plaza.social.model import (
    AccountSuspended,
    InvalidRefreshToken,
    PasskeyLogin,
    PasswordChange,
    PasswordLogin,
    RefreshRequest,
    Registration,
    SignedIn,
    User,
    UsernameTaken,
    WrongPassword,
)
from plaza.social.password_changes import PasswordChanges

# The service limits attempts by username, so these routes have no limit of their own.
route = Routes("accounts", about="Registration, sign-in and sessions.")


class Logout(msgspec.Struct, forbid_unknown_fields=True):
    """The session to end; without a token, all sessions of the caller."""

    refresh_token: str | None = None


class LoggedOut(msgspec.Struct):
    logged_out: bool = True


@route.post(
    "/auth/register",
    access=PUBLIC,
    status=201,
    limit=None,
    idempotent="by_handler",
    raises=[UsernameTaken, WeakPassword, KeyReused, TooFast],
    example={"username": "clara", "password": "correct horse battery", "bio": "Gardener."},
)
async def register(
    body: Registration, request: Request, accounts: Accounts, credentials: Credentials
) -> Response[SignedIn]:
    """Register an account and sign in. The same `Idempotency-Key` and body sign in again."""
    signed_in, again = await accounts.register_once(body, request.headers.get("idempotency-key"), request.client)
    device = set_device_cookie(request, credentials.new_device(body.username))
    return Response(signed_in, headers=[device, REPLAYED] if again else [device])


@route.post(
    "/auth/login",
    access=PUBLIC,
    limit=None,
    raises=[WrongPassword, MfaRequired, WrongCode, InvalidPasskey, AccountSuspended, TooFast],
    example={"username": "ana", "password": "correct horse battery"},
)
async def login(
    body: PasswordLogin, request: Request, accounts: Accounts, credentials: Credentials
) -> Response[SignedIn]:
    """Sign in with username and password. The cookie marks this client as known to the user."""
    signed_in = await accounts.login(body, sign_in_client(request))
    return Response(signed_in, headers=[set_device_cookie(request, credentials.new_device(body.username))])


@route.post(
    "/auth/passkeys/login",
    access=PUBLIC,
    limit="auth",
    raises=[InvalidPasskey, AccountSuspended],
    example={
        "credential": {
            "id": "dXNlZC1pZA",
            "rawId": "dXNlZC1pZA",
            "type": "public-key",
            "response": {
                "clientDataJSON": "dXNlZC1kYXRh",
                "authenticatorData": "dXNlZC1hdXRo",
                "signature": "dXNlZC1zaWc",
                "userHandle": "dXNlZC11c2Vy",
            },
        }
    },
)
async def login_with_passkey(
    body: PasskeyLogin, request: Request, accounts: Accounts, credentials: Credentials
) -> Response[SignedIn]:
    """Sign in with a passkey alone. It answers a challenge of `POST /auth/passkeys/challenge`."""
    signed_in = await accounts.login_with_passkey(body, sign_in_client(request))
    return Response(signed_in, headers=[set_device_cookie(request, credentials.new_device(signed_in.user.username))])


@route.post(
    "/auth/refresh",
    access=PUBLIC,
    raises=[InvalidRefreshToken, AccountSuspended],
    example={"refresh_token": "ana.5f3b9c1e.Zm9vYmFyYmF6cXV4"},
)
async def refresh_tokens(body: RefreshRequest, request: Request, accounts: Accounts) -> SignedIn:
    """Exchange a refresh token for the next one. Using a token twice ends its session."""
    return await accounts.refresh(body.refresh_token, request.client)


@route.post(
    "/auth/logout",
    access=PUBLIC,
    raises=[InvalidRefreshToken],
    example={"refresh_token": "ana.5f3b9c1e.Zm9vYmFyYmF6cXV4"},
)
async def logout(actor: Actor | None, body: Logout, request: Request, accounts: Accounts) -> LoggedOut:
    """End the session of a refresh token, or all sessions of the caller."""
    await accounts.logout(actor, body.refresh_token, request.client)
    return LoggedOut()


@route.post(
    "/auth/password",
    access=USER,
    limit=None,
    raises=[WeakPassword, TooFast],
    example={"old": "correct horse battery", "new": "a new horse battery"},
)
async def change_password(actor: Actor, body: PasswordChange, request: Request, passwords: PasswordChanges) -> SignedIn:
    """Change the password. Every other session ends."""
    return await passwords.change(actor, body, request.client)


@route.get("/whoami", access=AUTHENTICATED)
async def get_current_user(actor: Actor, accounts: Accounts) -> User:
    """Get the caller's profile."""
    return await accounts.whoami(actor)


@route.post("/whoami", access=AUTHENTICATED, logged=False)
async def get_current_user_by_post(actor: Actor, accounts: Accounts) -> User:
    """Get the caller's profile."""
    return await accounts.whoami(actor)
