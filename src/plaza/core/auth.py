"""Authentication: `Auth.actor` turns the credentials of a request into an `Actor`, without I/O.

A signature is checked once; valid tokens are cached, up to a limit. Expiry and revocation are checked on every request,
so that the cache never makes a token live longer.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from plaza.core.api_keys import ApiKeys, Scope
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, Unauthenticated
from plaza.core.revocations import NOT_REVOKED, Revocations
from plaza.core.roles import Role
from plaza.core.settings import Settings
from plaza.core.tokens import MAX_TOKEN_AGE_SECONDS, Claims, Tokens

USER: Final[Role] = "user"
MODEL: Final[Role] = "model"
ADMIN: Final[Role] = "admin"

# No username contains `@`, so the API key never looks like a user.
API_NAME: Final = "@api"

# About 600 bytes each, with the token: 12 MB when full.
MAX_CACHED_TOKENS: Final = 20_000
# A full cache takes one in so many new tokens. If it took all, and more users than it holds came by turns, each token
# would be gone when it came again.
ADMITTED_ONE_IN: Final = 16

_HEADERS: Final = ("authorization", "x-authorization", "x-access-token", "x-api-key")


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller: a user with a token, or a server with the API key."""

    name: str
    role: Role
    groups: tuple[str, ...] | None = None  # None if the token has no groups
    via_key: bool = False
    scopes: frozenset[Scope] | None = None  # of a named API key; None for everything that the role allows
    lacks_mfa: bool = False  # an admin whose rights are withheld until the account has a second factor
    # When the token was issued, to detect a revocation during the request (`username_locks.py`). None for API keys.
    since_ms: int | None = field(default=None, compare=False)
    session: str | None = field(default=None, compare=False)  # id of the session, if the credentials belong to one
    signed_in_ms: int | None = field(default=None, compare=False)  # when the user signed in, if it is known

    @property
    def is_admin(self) -> bool:
        return self.role == ADMIN and not self.lacks_mfa

    def require_self_or_admin(self, name: str) -> None:
        """Raise `Forbidden` unless the actor is this user or an admin."""
        if self.name != name and not self.is_admin:
            raise Forbidden("Only the owner or an admin may do this.")


API = Actor(API_NAME, ADMIN, via_key=True)


class VerifiedToken(Struct, frozen=True):
    """A token whose signature is valid."""

    actor: Actor
    issued_ms: int
    expires_s: float  # Unix seconds

    @classmethod
    def from_claims(cls, claims: Claims) -> VerifiedToken:
        issued_ms = claims.issued_ms()
        actor = Actor(
            claims.username,
            claims.role,
            claims.group_names(),
            since_ms=issued_ms,
            session=claims.session(),
            signed_in_ms=claims.signed_in_ms(),
        )
        return cls(actor, issued_ms, min(claims.exp, claims.iat + MAX_TOKEN_AGE_SECONDS))


class Auth:
    """Reads credentials, and issues and revokes tokens."""

    def __init__(
        self,
        settings: Settings,
        revocations: Revocations | None = None,
        *,
        ended_sessions: Revocations | None = None,
        api_keys: ApiKeys | None = None,
        max_cached: int = MAX_CACHED_TOKENS,
        clock: Clock | None = None,
    ) -> None:
        self.revocations = Revocations() if revocations is None else revocations
        self.ended_sessions = Revocations() if ended_sessions is None else ended_sessions
        self._tokens = Tokens(settings.secret("jwt_secret"), settings.jwt_public_key)
        self._api_key = settings.secret("api_key").encode()
        self.api_keys = api_keys
        self._verified: OrderedDict[str, VerifiedToken] = OrderedDict()
        self._max_cached = max_cached
        self._not_admitted = 0
        self._clock = clock or Clock()

    def actor(self, headers: Mapping[str, str]) -> Actor | None:
        """The actor of the credentials in the headers (names in lower case); None without credentials. No I/O.

        Raises `Unauthenticated` if they are wrong.
        """
        header, credential = "", ""
        for name in _HEADERS:
            value = headers.get(name)
            if value is None:
                continue
            value = _bearer(value) if name == "authorization" else value.strip()
            if header and value != credential:
                raise Unauthenticated("Several different credentials. Send one.")
            header, credential = header or name, value
        if not header:
            return None
        if header == "x-api-key":
            actor = self._api_key_actor(credential)
            if actor is None:
                raise Unauthenticated("The API key is not valid.")
            return actor
        return self._token_actor(credential, may_be_key=header == "authorization")

    def issue_time_ms(self, username: str) -> int:
        """The issue time for a new token, later than any known revocation of the user.

        Take it before you check that the user may sign in: then a revocation in between makes the token void.
        """
        return max(self._clock.now_ms(), self.revocations.token_revoked_ms(username) + 1)

    def revocation_time_ms(self, username: str) -> int:
        """The time for a revocation: no token of the user is later, also if the clock was set back since."""
        return self.revocations.next_ms(username)

    def issue(self, username: str, role: Role, *, issued_ms: int | None = None, **claims: Any) -> str:
        """A new access token with `user_id`, `username`, `role`, `iat`, `exp` and further claims such as `groups`."""
        if issued_ms is None:
            issued_ms = self.issue_time_ms(username)
        return self._tokens.issue(username, role, issued_ms, claims, self._clock.now_ms())

    async def revoke_access_tokens(self, username: str, at_ms: int) -> None:
        """Make the access tokens issued up to a time void; sessions stay. One round trip. See `revoke_tokens`."""
        await self.revocations.revoke_access_tokens(username, at_ms)

    async def end_session(self, session: str, at_ms: int) -> None:
        """Make the access tokens of one API session void. One round trip. See `revoke_tokens`."""
        await self.ended_sessions.add(session, at_ms)

    async def revoke_tokens(self, username: str) -> None:
        """Make every token and session of a user void from now on. One round trip.

        A command that deletes, renames or suspends a user stores the revocation in the same atomic step. Its caller
        calls this too, so that this process knows at once and does not wait for the notification.
        """
        await self.revocations.revoke(username)

    def has_ended(self, actor: Actor) -> bool:
        """Whether an actor who was accepted earlier is no longer: deleted, renamed, suspended, signed out. No I/O."""
        if actor.since_ms is not None and actor.since_ms <= self.revocations.revoked_ms(actor.name):
            return True
        return actor.session is not None and self.ended_sessions.revoked_ms(actor.session) != NOT_REVOKED

    def _token_actor(self, token: str, *, may_be_key: bool) -> Actor:
        verified = self._verified.get(token)
        if verified is None:
            # Redis clients over HTTP can only send a Bearer token, so an API key is accepted there too.
            if may_be_key and (actor := self._api_key_actor(token)) is not None:
                return actor
            verified = VerifiedToken.from_claims(self._tokens.read(token, self._clock.latest_ms() / 1000))
        if verified.expires_s <= self._clock.now_s():
            self._verified.pop(token, None)
            raise Unauthenticated("The token has expired. Refresh it or sign in again.")
        if self._is_revoked(verified):
            self._verified.pop(token, None)
            raise Unauthenticated("The token was revoked. Sign in again.")
        if token not in self._verified:
            self._cache(token, verified)
        return verified.actor

    def _is_revoked(self, verified: VerifiedToken) -> bool:
        """Whether the user's tokens were revoked or the session has ended since the token was issued. No I/O."""
        actor = verified.actor
        if verified.issued_ms <= self.revocations.token_revoked_ms(actor.name):
            return True
        # Whenever it was issued: an ended session never gets another token, but the clocks of two processes may differ.
        return actor.session is not None and self.ended_sessions.revoked_ms(actor.session) != NOT_REVOKED

    def _cache(self, token: str, verified: VerifiedToken) -> None:
        """Cache a valid token. A caller without credentials cannot evict others. A full cache gives up its oldest."""
        cached = self._verified
        if len(cached) >= self._max_cached:
            oldest = next(iter(cached))
            self._not_admitted += 1
            if self._not_admitted < ADMITTED_ONE_IN and cached[oldest].expires_s > self._clock.now_s():
                return
            self._not_admitted = 0
            del cached[oldest]
        cached[token] = verified

    def _api_key_actor(self, text: str) -> Actor | None:
        """Return the caller with this API key: the one of the settings, or a named one. None if there is none."""
        if hmac.compare_digest(_header_bytes(text), self._api_key):
            return API
        key = self.api_keys.find(text) if self.api_keys is not None else None
        if key is None:
            return None
        scopes = frozenset(key.scopes)
        role = ADMIN if scopes & {"admin", "read"} else USER
        return Actor(f"{API_NAME}:{key.name}", role, via_key=True, scopes=None if "admin" in scopes else scopes)


def _header_bytes(text: str) -> bytes:
    """A header value as bytes, because `compare_digest` accepts only ASCII text and clients may send any."""
    try:
        return text.encode("latin-1")  # the encoding of ASGI headers
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _bearer(value: str) -> str:
    scheme, _, credential = value.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("Use `Authorization: Bearer <token>`.")
    return credential.strip()
