"""JSON Web Tokens: issuing and verification.

The key decides the algorithm: the secret HS256, an RSA public key RS256, an EC key on P-256 ES256. The token's header
is only compared with it. That prevents `alg: none` and signatures made with the public key's text as a secret.

`hs256.py` checks the signatures of tokens with the secret, PyJWT those with a public key. The claims are checked here,
because PyJWT accepts tokens without an expiry or an issue time, and knows neither roles nor usernames.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from plaza.core.errors import SettingError, Unauthenticated
from plaza.core.hs256 import Hs256, InvalidToken
from plaza.core.number_parsing import MAX_TIME_MS
from plaza.core.roles import ROLES, Role

ACCESS_TOKEN_SECONDS: Final = 900
# How far another issuer's clock may be ahead.
MAX_CLOCK_SKEW_SECONDS: Final = 10
# Older tokens are refused whatever their expiry. So revocations can be forgotten after this time, and the list of them,
# which every process holds in memory, stays short.
MAX_TOKEN_AGE_SECONDS: Final = 90 * 86_400
# Plaza's tokens have about 250 characters. Longer ones are refused before they are hashed.
MAX_TOKEN_CHARACTERS: Final = 8_192

# What an access token may call itself (RFC 7519, 5.1, and RFC 9068). Tokens for something else have another type.
TOKEN_TYPES: Final = (None, "jwt", "at+jwt")

USERNAME: Final = r"[A-Za-z0-9._-]{1,30}"
_USERNAME = re.compile(USERNAME)
# In paths and in the proxy these mean the caller.
RESERVED: Final = frozenset({"me", "AUTH"})


def is_username(text: str) -> bool:
    """Whether a text is a valid username."""
    return _USERNAME.fullmatch(text) is not None and text not in RESERVED


class Claims(msgspec.Struct, frozen=True):
    """The claims of a token that Plaza reads. Others are ignored."""

    username: str
    role: Role
    iat: int | float
    exp: int | float
    iat_ms: int | None = None
    nbf: int | float | None = None
    aud: Any = None
    groups: Any = None  # another issuer may use it for something else
    sid: Any = None
    auth_time: Any = None

    def group_names(self) -> tuple[str, ...] | None:
        """The groups of the token; None if it has no list of groups."""
        if not isinstance(self.groups, list):
            return None
        return tuple(group for group in self.groups if isinstance(group, str))

    def session(self) -> str | None:
        """The session of the token; None if it has none."""
        return self.sid if isinstance(self.sid, str) else None

    def signed_in_ms(self) -> int | None:
        """When the user signed in, in Unix milliseconds; None if the token does not say."""
        if isinstance(self.auth_time, bool) or not isinstance(self.auth_time, int | float):
            return None
        return int(min(max(self.auth_time, 0) * 1000, MAX_TIME_MS))

    def issued_ms(self) -> int:
        """When the token was issued, in Unix milliseconds, rounded down.

        `iat` usually has whole seconds. Such a token counts as issued at the start of its second, so that a revocation
        within that second makes it void. Plaza's own tokens also have the millisecond.
        """
        if self.iat_ms is not None and self.iat_ms // 1000 == self.iat:
            return self.iat_ms
        return int(self.iat * 1000)


_decode_claims = msgspec.json.Decoder(Claims).decode


class Tokens:
    """Signs tokens with the secret. Verifies those, and tokens of another issuer if its public key is configured."""

    def __init__(self, secret: str, public_key: Path | None = None) -> None:
        try:
            self._own = Hs256(secret.encode(), typ="JWT", accepts=TOKEN_TYPES)
        except ValueError as error:
            raise SettingError(f"PLAZA_JWT_SECRET is not a secret. {error}") from None
        self._issuer = None
        if public_key is not None:
            from plaza.core.issuer_key import read_public_key  # 50 ms of CPU that a start without such a key saves

            self._issuer = read_public_key(public_key)

    def issue(self, username: str, role: Role, at_ms: int, more: dict[str, Any], now_ms: int | None = None) -> str:
        """A token that is valid for `ACCESS_TOKEN_SECONDS` from `at_ms`, or from now if that is earlier."""
        if not is_username(username) or role not in ROLES:
            raise ValueError("a token needs a username and one of the roles")
        issued = at_ms // 1000
        identity = {"user_id": username, "username": username, "role": role}
        valid_from = at_ms if now_ms is None else min(at_ms, now_ms)
        times = {"iat": issued, "iat_ms": at_ms, "exp": valid_from // 1000 + ACCESS_TOKEN_SECONDS}
        return self._own.sign(msgspec.json.encode({**more, **identity, **times}))

    def read(self, token: str, latest: float) -> Claims:
        """The claims of a token that was issued up to a time (Unix seconds). Raises `Unauthenticated` otherwise.

        It may have expired. `latest` is later than now if the clock was set back: the tokens from before stay valid.
        """
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise invalid()
        try:
            claims = _decode_claims(self._payload(token))
        except (
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ):  # the payload is not JSON, or has other claims
            raise invalid() from None
        if not is_username(claims.username):
            raise invalid()
        # Plaza has no audience name, so a token with an audience is for another service (RFC 7519, 4.1.3).
        if claims.aud is not None or claims.iat > latest + MAX_CLOCK_SKEW_SECONDS:
            raise invalid()
        if claims.nbf is not None and claims.nbf > latest + MAX_CLOCK_SKEW_SECONDS:
            raise invalid()
        return claims

    def _payload(self, token: str) -> bytes:
        try:
            return self._own.verify(token)
        except InvalidToken:
            if self._issuer is None:
                raise invalid() from None
        try:
            return self._issuer.verify(token)
        except InvalidToken:
            raise invalid() from None


def invalid() -> Unauthenticated:
    """The same error for every invalid token, so that it reveals nothing to an attacker."""
    return Unauthenticated("The token is not valid.")
