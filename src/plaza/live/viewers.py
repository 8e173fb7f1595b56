"""Identifies viewers: users by their token, viewers without an account by a viewer token.

A viewer without an account cannot choose an id, or one client could pose as a thousand viewers. They get a signed
token that contains an id, limited by address. It is signed with its own key, derived from the secret, so a viewer token
is never valid as a user's token, or the other way round. The ids start with `~`, which no username contains.

Heartbeats are rate-limited in this process, not in Valkey: a few too many do no harm, and asking Valkey first would
double the cost of a heartbeat.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from msgspec import DecodeError, Struct, json

from plaza.core.auth import USER, Actor, Auth
from plaza.core.clock import Clock
from plaza.core.errors import Unauthenticated
from plaza.core.hs256 import Hs256, InvalidToken
from plaza.core.http.request import Request
from plaza.core.rate_limits import POLICIES, address_subject
from plaza.core.settings import Settings
from plaza.live.geo import GeoLocator
from plaza.live.model import Viewer
from plaza.live.throttle import HeartbeatThrottle

# An event may last for days. A viewer who returns later counts as a new viewer.
TOKEN_SECONDS = 7 * 86_400
MAX_CACHED_TOKENS = 50_000
MAX_TOKEN_LENGTH = 512

_TYPE = "viewer+jwt"
_HEADERS = ("authorization", "x-authorization", "x-access-token")


class ViewerToken(Struct):
    """A token for a viewer without an account."""

    token: str
    viewer_id: str
    expires_in: int


class ViewerClaims(Struct):
    sub: str
    exp: int
    aud: str = "plaza-viewer"


class ViewerTokens:
    """Signs and verifies viewer tokens."""

    def __init__(self, secret: str, clock: Clock) -> None:
        key = hmac.digest(secret.encode(), b"plaza viewer token", "sha256")
        self._signed = Hs256(key, typ=_TYPE, accepts=[_TYPE])
        self._clock = clock
        self._prefix = self._signed.sign(b"").partition(".")[0] + "."
        self._verified: dict[str, ViewerClaims] = {}

    def issue(self, username: str | None = None) -> ViewerToken:
        """Return a token for a new anonymous viewer, or for a user whose page must not contain a user token."""
        name = f"~{secrets.token_urlsafe(12)}" if username is None else username
        claims = ViewerClaims(sub=name, exp=int(self._clock.now_s()) + TOKEN_SECONDS)
        return ViewerToken(self._signed.sign(json.encode(claims)), claims.sub, TOKEN_SECONDS)

    def is_viewer_token(self, credential: str) -> bool:
        """Whether a credential has the header of a viewer token. No other credential starts with it."""
        return credential.startswith(self._prefix)

    def read(self, token: str) -> ViewerClaims:
        """Return the claims of a token that is valid now."""
        claims = self._verified.get(token)
        if claims is None:
            claims = self._verify(token)
            if len(self._verified) >= MAX_CACHED_TOKENS:
                self._verified.clear()
            self._verified[token] = claims
        if claims.exp <= self._clock.now_s():
            self._verified.pop(token, None)
            raise Unauthenticated("The viewer token has expired. Request another one.")
        return claims

    def _verify(self, token: str) -> ViewerClaims:
        """Check the signature and decode the claims. The expiry is checked by `read`, with the caller's clock."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise Unauthenticated("The viewer token is not valid.")
        try:
            return json.decode(self._signed.verify(token), type=ViewerClaims)
        except (InvalidToken, DecodeError, UnicodeDecodeError, RecursionError):
            raise Unauthenticated("The viewer token is not valid.") from None


class ViewerAuthenticator:
    """Identifies the viewer of a request, and turns them into a `Viewer`."""

    def __init__(self, auth: Auth, geo: GeoLocator, settings: Settings, clock: Clock) -> None:
        self.tokens = ViewerTokens(settings.secret("jwt_secret"), clock)
        self._auth = auth
        self._geo = geo
        self._throttle = HeartbeatThrottle(clock) if settings.rate_limits else None

    async def get_viewer(self, actor: Actor, request: Request) -> Viewer:
        """Return the sender of a heartbeat. No I/O, except for the day's salt where addresses are hashed."""
        address = request.address
        if self._throttle is not None:
            policy = POLICIES["heartbeat"]
            assert policy.address is not None
            self._throttle.take(actor.name, policy.user)
            self._throttle.take(f"@{address_subject(address)}", policy.address)
        country = self._geo.country(address, request.headers, request.proxied)
        stored, client = await self._geo.stored_address(address), address_subject(address)
        return Viewer(actor.name, stored, country, actor.groups, client)

    def actor(self, headers: Mapping[str, str]) -> Actor | None:
        """Return the viewer of a viewer token, or the user of a user token. No I/O."""
        for name in _HEADERS:
            credential = headers.get(name, "").strip()
            if name == "authorization":
                credential = credential.partition(" ")[2].strip()
            if self.tokens.is_viewer_token(credential):
                return Actor(self._read_viewer_token(credential), USER)
        return self._auth.actor(headers)

    def _read_viewer_token(self, token: str) -> str:
        claims = self.tokens.read(token)
        # A user who was deleted, renamed or suspended since then must not be written again.
        if self._auth.revocations.revoked_ms(claims.sub) >= (claims.exp - TOKEN_SECONDS) * 1000:
            raise Unauthenticated("The viewer token was revoked. Request another one.")
        return claims.sub
