"""Who watches: a user by their token, or a stranger by a viewer token of ours.

A stranger cannot simply say an id, or one person could be a thousand viewers. They get a token with an id in it, so
many per address and no more. It is signed with a key of its own, derived from the secret: no viewer token is ever a
user's token, nor the other way round. The ids begin with `~`, which no username contains.

How often one may beat is counted in this process, not in Valkey: a beat too many harms nobody, and asking first would
double what a heartbeat costs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from msgspec import DecodeError, Struct, json

from plaza.core.auth import USER, Actor, Auth
from plaza.core.clock import Clock
from plaza.core.errors import TooFast, Unauthenticated
from plaza.core.http.request import Request
from plaza.core.rate_limits import POLICIES, Quota, address_subject
from plaza.core.settings import Settings
from plaza.live.geo import GeoLocator
from plaza.live.model import Viewer

# An event may last for days, and who comes back next week is counted anew.
TOKEN_SECONDS = 7 * 86_400
REMEMBERED = 50_000

_HEADERS = ("authorization", "x-authorization", "x-access-token")


class ViewerToken(Struct):
    """What a stranger gets."""

    token: str
    viewer_id: str
    expires_in: int


class ViewerClaims(Struct):
    sub: str
    exp: int
    aud: str = "plaza-viewer"


class ViewerTokens:
    """Signs and reads tokens of strangers."""

    def __init__(self, secret: str, clock: Clock) -> None:
        self._key = hmac.digest(secret.encode(), b"plaza viewer token", "sha256")
        self._clock = clock
        self._head = _b64(b'{"alg":"HS256","typ":"viewer+jwt"}') + "."
        self._read: dict[str, ViewerClaims] = {}

    def issue(self, username: str | None = None) -> ViewerToken:
        """A token for a stranger; or for a person on a page, which may not hold what opens their account."""
        name = f"~{secrets.token_urlsafe(12)}" if username is None else username
        claims = ViewerClaims(sub=name, exp=int(self._clock.now_s()) + TOKEN_SECONDS)
        text = self._head + _b64(json.encode(claims))
        return ViewerToken(f"{text}.{self._signature(text)}", claims.sub, TOKEN_SECONDS)

    def is_one(self, credential: str) -> bool:
        """Whether it claims to be a viewer token; nothing else begins so."""
        return credential.startswith(self._head)

    def viewer(self, token: str) -> str:
        """The id in a token that is good now."""
        return self.read(token).sub

    def read(self, token: str) -> ViewerClaims:
        """What a token says that is good now."""
        claims = self._read.get(token)
        if claims is None:
            claims = self._claims(token)
            if len(self._read) >= REMEMBERED:
                self._read.clear()
            self._read[token] = claims
        if claims.exp <= self._clock.now_s():
            self._read.pop(token, None)
            raise Unauthenticated("The viewer token has expired.")
        return claims

    def _claims(self, token: str) -> ViewerClaims:
        text, _, signature = token.rpartition(".")
        if len(token) > 512 or not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            raise Unauthenticated("The viewer token is not valid.")
        body = text.partition(".")[2]
        try:
            return json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=ViewerClaims)
        except (DecodeError, ValueError):
            raise Unauthenticated("The viewer token is not valid.") from None

    def _signature(self, text: str) -> str:
        return _b64(hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest())


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class HeartbeatThrottle:
    """How often each may beat, in this process: so many at once, then one by one as time gives them back."""

    _MOST = 200_000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}  # when all that was taken is given back, Unix seconds

    def take(self, who: str, quota: Quota) -> None:
        """Count one, or raise `TooFast`."""
        now = self._clock.now_s()
        due = max(self._due.get(who, now), now) + quota.seconds / quota.count
        wait = due - now - quota.seconds
        if wait > 0:
            raise TooFast("Too many heartbeats. Beat when `next_heartbeat_ms` says.", retry_after=max(1.0, wait))
        if len(self._due) >= self._MOST:
            self._due = {name: at for name, at in self._due.items() if at > now}
        self._due[who] = due


class ViewerAuthenticator:
    """Turns a request into a `Watcher`."""

    def __init__(self, auth: Auth, places: GeoLocator, settings: Settings, clock: Clock) -> None:
        self.tokens = ViewerTokens(settings.secret("jwt_secret"), clock)
        self._auth = auth
        self._places = places
        self._throttle = HeartbeatThrottle(clock) if settings.rate_limits else None

    async def watcher(self, actor: Actor, request: Request) -> Viewer:
        """Who beats. No I/O, but for the day's salt where addresses are hashed."""
        address = request.address
        if self._throttle is not None:
            policy = POLICIES["heartbeat"]
            self._throttle.take(actor.name, policy.user)
            self._throttle.take(f"@{address_subject(address)}", policy.address)
        country = self._places.country(address, request.headers, request.proxied)
        return Viewer(actor.name, await self._places.stored(address), country, actor.groups)

    def actor(self, headers: Mapping[str, str]) -> Actor | None:
        """The viewer of a viewer token, or the user of a user token. No I/O."""
        for name in _HEADERS:
            credential = headers.get(name, "").strip()
            if name == "authorization":
                credential = credential.partition(" ")[2].strip()
            if self.tokens.is_one(credential):
                return Actor(self._by_viewer_token(credential), USER)
        return self._auth.actor(headers)

    def _by_viewer_token(self, token: str) -> str:
        claims = self.tokens.read(token)
        # Of a person who was deleted, renamed or suspended since, nothing is written any more.
        if self._auth.revocations.of(claims.sub) >= (claims.exp - TOKEN_SECONDS) * 1000:
            raise Unauthenticated("The viewer token is no longer valid.")
        return claims.sub
