"""Signs users in with an OpenID provider, and links their identity there to an account here.

The start stores a one-time state and gives the browser the same state in a cookie. The callback needs both, so an
attacker cannot finish a sign-in in another user's browser. An identity is linked by the provider's permanent id, never
by its e-mail address: control of an address at a provider is not control of the account that uses it here.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from plaza.accounts.keys import ACCOUNT_IDENTITIES, IDENTITY, OPENID_STATE, STATE_SECONDS
from plaza.accounts.model import Identity, SignInRefused, digest
from plaza.core.domain import CredentialStore
from plaza.core.errors import NotFound
from plaza.core.tokens import is_username
from plaza.core.valkey import Valkey

if TYPE_CHECKING:
    from plaza.accounts.openid_client import OpenIdClient

# Attempts to find a free username for a new account, the last ones with a random suffix.
NAME_ATTEMPTS: Final = 20


class _State(msgspec.Struct):
    nonce: str
    verifier: str
    next: str


class SignInStart(msgspec.Struct):
    """Where to send the browser, and the state for its cookie."""

    url: str
    state: str


class OpenIdSignIn:
    """Sign-in with the configured provider. Without one, every call is 404."""

    def __init__(self, valkey: Valkey, client: OpenIdClient | None, credentials: CredentialStore) -> None:
        self._valkey = valkey
        self._client = client
        self._credentials = credentials

    @property
    def is_configured(self) -> bool:
        return self._client is not None

    async def start(self, next: str) -> SignInStart:
        """Begin a sign-in that ends at the page `next`. One round trip besides the provider's."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        url = await self._provider().authorization_url(state, nonce, verifier)
        stored = msgspec.json.encode(_State(nonce, verifier, next))
        await self._valkey.call("SET", OPENID_STATE(digest(state)), stored, "EX", STATE_SECONDS)
        return SignInStart(url, state)

    async def finish(self, state: str, cookie: str, code: str) -> tuple[str, str]:
        """Return the user who signed in and the page to go to. A new identity gets a new account."""
        client = self._provider()
        if not secrets.compare_digest(state.encode(), cookie.encode()):
            raise SignInRefused
        stored = await self._valkey.call("GETDEL", OPENID_STATE(digest(state)))
        if stored is None:
            raise SignInRefused
        begun = msgspec.json.decode(stored, type=_State)
        identity = await client.exchange(code, begun.nonce, begun.verifier)
        username = await self._username(identity)
        if await self._credentials.actor(username) is None:
            raise SignInRefused("This account is suspended.")
        return username, begun.next

    def _provider(self) -> OpenIdClient:
        if self._client is None:
            raise NotFound("No sign-in provider is configured.")
        return self._client

    async def _username(self, identity: Identity) -> str:
        key = IDENTITY(digest(f"{identity.iss} {identity.sub}"))
        known: str | None = await self._valkey.call("GET", key)
        if known is not None:
            return known
        username = await self._create_account(identity)
        # Two first sign-ins at once: the first link counts, and the other account stays without one.
        linked: str | None = await self._valkey.call("SET", key, username, "NX", "GET")
        username = username if linked is None else linked
        await self._valkey.call("SADD", ACCOUNT_IDENTITIES(username), digest(f"{identity.iss} {identity.sub}"))
        return username

    async def _create_account(self, identity: Identity) -> str:
        wanted = _proposed_name(identity)
        for attempt in range(NAME_ATTEMPTS):
            suffix = "" if attempt == 0 else f"-{attempt + 1}" if attempt < NAME_ATTEMPTS // 2 else _random_suffix()
            name = wanted[: 30 - len(suffix)] + suffix
            profile = {"display_name": (identity.name or "")[:50]}
            if is_username(name) and await self._credentials.create(name, profile):
                return name
        raise SignInRefused("No free username was found. Register first.")


def _proposed_name(identity: Identity) -> str:
    source = identity.preferred_username or (identity.email or "").partition("@")[0] or "user"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", source).strip("-.")[:30] or "user"


def _random_suffix() -> str:
    return f"-{secrets.token_hex(3)}"
