"""The HTTP routes of passkeys. Signing in with one is beside signing in with a password, in social."""

from __future__ import annotations

from plaza.accounts.model import (
    IncorrectPassword,
    InvalidChallenge,
    Passkey,
    PasskeyAdded,
    PasskeyChange,
    PasskeyId,
    PasskeyKnown,
    PasskeyOptions,
    PasskeyPage,
    PasskeyRegistration,
    PasswordProof,
    SignInAgain,
    TooManyPasskeys,
)
from plaza.accounts.passkeys import Passkeys
from plaza.accounts.sign_in_proof import SignInProof
from plaza.core.auth import Actor
from plaza.core.domain import InvalidPasskey
from plaza.core.errors import NotFound, TooFast
from plaza.core.http.access import PUBLIC, USER
from plaza.core.http.request import Request
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.core.security_log import AccountLog

route = Routes("accounts", prefix="/auth/passkeys")

# What a browser made of the options; it cannot be written by hand.
EXAMPLE = {
    "name": "My phone",
    "credential": {
        "id": "bmV3LWlk",
        "rawId": "bmV3LWlk",
        "type": "public-key",
        "response": {"clientDataJSON": "bmV3LWRhdGE", "attestationObject": "bmV3LWtleQ"},
    },
}


@route.get("", access=USER)
async def list_passkeys(actor: Actor, page: Page, passkeys: Passkeys) -> PasskeyPage:
    """List your passkeys, newest first."""
    return await passkeys.page(actor, page)


@route.post(
    "/options",
    access=USER,
    limit=None,
    raises=[IncorrectPassword, SignInAgain, NotFound, TooFast],
    example={"password": "correct horse battery"},
)
async def create_passkey_options(
    actor: Actor, body: PasswordProof, request: Request, proof: SignInProof, passkeys: Passkeys
) -> PasskeyOptions:
    """Get the options for `navigator.credentials.create`, with your password. They are valid for five minutes."""
    await proof.require(actor, body.password, request.address)
    return PasskeyOptions(await passkeys.registration_options(actor))


@route.post(
    "",
    access=USER,
    status=201,
    raises=[InvalidChallenge, InvalidPasskey, PasskeyKnown, TooManyPasskeys],
    example=EXAMPLE,
)
async def add_passkey(
    actor: Actor, body: PasskeyRegistration, request: Request, passkeys: Passkeys, log: AccountLog
) -> PasskeyAdded:
    """Add a passkey. Signing in with the password needs it from then on, or a code; or it signs in alone."""
    added = await passkeys.register(actor, body.name, body.credential)
    await log.record(actor.name, "passkey_added", request.address)
    return added


@route.patch("/{id}", access=USER, example={"name": "My laptop"})
async def rename_passkey(actor: Actor, id: PasskeyId, body: PasskeyChange, passkeys: Passkeys) -> Passkey:
    """Rename a passkey."""
    return await passkeys.rename(actor, id, body.name)


@route.delete(
    "/{id}",
    access=USER,
    status=204,
    limit=None,
    raises=[IncorrectPassword, SignInAgain, TooFast],
    example={"password": "correct horse battery"},
)
async def remove_passkey(
    actor: Actor,
    id: PasskeyId,
    body: PasswordProof,
    request: Request,
    proof: SignInProof,
    passkeys: Passkeys,
    log: AccountLog,
) -> None:
    """Remove a passkey, with your password."""
    await proof.require(actor, body.password, request.address)
    await passkeys.remove(actor, id)
    await log.record(actor.name, "passkey_removed", request.address)


@route.post("/challenge", access=PUBLIC, raises=[NotFound])
async def create_passkey_challenge(passkeys: Passkeys) -> PasskeyOptions:
    """Get the options for `navigator.credentials.get`. They are valid for five minutes, for any account."""
    return PasskeyOptions(passkeys.sign_in_options())
