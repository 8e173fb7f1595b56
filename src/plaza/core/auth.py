"""Who is asking. `Auth.actor` turns a request's headers into an `Actor`, without I/O.

A signature is checked once: a token that was found good is remembered until it expires, in a bounded memory. What can
change in between — the clock, and whether its name was cut off — is looked at on every request, so that remembering
never makes a token live longer.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plaza.core.api_keys import ApiKeys, Scope
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, Unauthenticated
from plaza.core.revocations import Revocations
from plaza.core.settings import Settings
from plaza.core.tokens import MAX_TOKEN_AGE_SECONDS, Claims, Role, Tokens

USER: Final[Role] = "user"
MODEL: Final[Role] = "model"
ADMIN: Final[Role] = "admin"

# `@` is in no username, so the holder of the API key is never mistaken for a person.
API_NAME: Final = "@api"

# Some 600 bytes each, with the token: 12 MB when full.
REMEMBERED: Final = 20_000

_HEADERS: Final = ("authorization", "x-authorization", "x-access-token", "x-api-key")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a person by a token, or a server by the API key."""

    name: str
    role: Role
    groups: tuple[str, ...] | None = None  # None: the token does not speak of groups
    via_key: bool = False
    scopes: frozenset[Scope] | None = None  # of a named API key; None: everything that the role allows
    # When what proves it was issued: the name may be given up since (`bearers.py`). None: nothing that could be void.
    since_ms: int | None = field(default=None, compare=False)

    @property
    def is_admin(self) -> bool:
        return self.role == ADMIN

    def require_self_or_admin(self, name: str) -> None:
        """Refuse who is neither that person nor an admin."""
        if self.name != name and not self.is_admin:
            raise Forbidden("This is for the owner or an admin.")


API = Actor(API_NAME, ADMIN, via_key=True)


@dataclass(frozen=True, slots=True)
class Verified:
    """A token's meaning, kept so that its signature is checked once."""

    actor: Actor
    issued_ms: int
    ends: float  # Unix seconds

    @classmethod
    def by(cls, claims: Claims) -> Verified:
        issued_ms = claims.issued_ms()
        actor = Actor(claims.username, claims.role, claims.group_names(), since_ms=issued_ms)
        return cls(actor, issued_ms, min(claims.exp, claims.iat + MAX_TOKEN_AGE_SECONDS))


class Auth:
    """Credentials in, an `Actor` out; and the tokens we issue ourselves."""

    def __init__(
        self,
        settings: Settings,
        revocations: Revocations | None = None,
        *,
        api_keys: ApiKeys | None = None,
        remembered: int = REMEMBERED,
        clock: Clock | None = None,
    ) -> None:
        self.revocations = Revocations() if revocations is None else revocations
        self._tokens = Tokens(settings.secret("jwt_secret"), settings.jwt_public_key)
        self._api_key = settings.secret("api_key").encode()
        self.api_keys = api_keys
        self._verified: OrderedDict[str, Verified] = OrderedDict()
        self._bound = remembered
        self._clock = clock or Clock()

    def actor(self, headers: Mapping[str, str]) -> Actor | None:
        """The actor that the headers (names in lower case) prove; None without credentials. No I/O.

        Credentials that are wrong are refused also where none are needed: a client that believes it is logged in
        should hear that it is not.
        """
        header, credential = "", ""
        for name in _HEADERS:
            value = headers.get(name)
            if value is None:
                continue
            value = _bearer(value) if name == "authorization" else value.strip()
            if header and value != credential:
                raise Unauthenticated("Send one credential, not several that differ.")
            header, credential = header or name, value
        if not header:
            return None
        if header == "x-api-key":
            actor = self._by_api_key(credential)
            if actor is None:
                raise Unauthenticated("The API key is not valid.")
            return actor
        return self._by_token(credential, may_be_key=header == "authorization")

    def stamp(self, username: str) -> int:
        """A moment for `issue`: take it before reading what entitles the user, so that a suspension that comes in
        between ends the token. It is later than any cut-off known here, whose clock may run ahead of ours.
        """
        return max(self._clock.now_ms(), self.revocations.of(username) + 1)

    def issue(self, username: str, role: Role, *, stamp: int | None = None, **claims: Any) -> str:
        """A token of ours: `user_id`, `username`, `role`, `iat`, `exp`, and further claims such as `groups`."""
        if stamp is None:
            stamp = self.stamp(username)
        return self._tokens.issue(username, role, stamp, claims)

    async def cut_off(self, username: str) -> None:
        """Void every token this name has: it was deleted, renamed or suspended. One round trip.

        Verbs that do so note it in the same step as their facts. Their callers say it again here: then this process
        knows it now, and not when the news arrives.
        """
        await self.revocations.note(username)

    def _by_token(self, token: str, *, may_be_key: bool) -> Actor:
        verified = self._verified.get(token)
        if verified is None:
            # Redis clients over HTTP have only the Bearer field, so servers may put the API key there too.
            if may_be_key and (actor := self._by_api_key(token)) is not None:
                return actor
            verified = Verified.by(self._tokens.read(token, self._clock.now_s()))
        else:
            self._verified.move_to_end(token)
        if verified.ends <= self._clock.now_s():
            self._verified.pop(token, None)
            raise Unauthenticated("The token has expired.")
        if verified.issued_ms <= self.revocations.of(verified.actor.name):
            self._verified.pop(token, None)
            raise Unauthenticated("The token is no longer valid.")
        if token not in self._verified:
            self._remember(token, verified)
        return verified.actor

    def _remember(self, token: str, verified: Verified) -> None:
        # Only good tokens come here, so nobody without credentials can push others out.
        self._verified[token] = verified
        if len(self._verified) > self._bound:
            self._verified.popitem(last=False)

    def _by_api_key(self, text: str) -> Actor | None:
        """Return the caller with this API key: the one of the settings, or a named one. None if there is none."""
        if hmac.compare_digest(_as_sent(text), self._api_key):
            return API
        key = self.api_keys.find(text) if self.api_keys is not None else None
        if key is None:
            return None
        scopes = frozenset(key.scopes)
        role = ADMIN if scopes & {"admin", "read"} else USER
        return Actor(f"{API_NAME}:{key.name}", role, via_key=True, scopes=None if "admin" in scopes else scopes)


def _as_sent(text: str) -> bytes:
    """A header's bytes. `compare_digest` takes no text beyond ASCII, and a client may send any."""
    try:
        return text.encode("latin-1")  # how servers decode headers
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _bearer(value: str) -> str:
    scheme, _, credential = value.strip().partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("Use `Authorization: Bearer <token>`.")
    return credential.strip()
