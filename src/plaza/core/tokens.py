"""JWTs: what we sign, and what we believe.

A key decides its own algorithm: the secret is HS256, an RSA public key RS256, an EC key on P-256 ES256. The token's
header never chooses. It is only ever compared, which is what closes `alg: none` and the trick of signing with a
public key's text as if it were a secret.

Only the signature is PyJWT's work. The claims are read into a type here, with the caller's clock, because the library
would accept what we must not: a token without an expiry or an issue time, a role nobody knows, a name that is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from plaza.core.errors import SettingError, Unauthenticated

Role = Literal["user", "model", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

ACCESS_TOKEN_SECONDS: Final = 900
# Another issuer's clock may run a little ahead of ours.
MAX_CLOCK_SKEW_SECONDS: Final = 10
# Cut-offs must be kept as long as a token they end could still be shown. Older tokens are refused whatever their
# expiry, so that the list of cut-offs, which every process holds, does not grow for ever.
MAX_TOKEN_AGE_SECONDS: Final = 90 * 86_400
# Ours have some 250 characters. What is longer than this is not worth hashing.
MAX_TOKEN_CHARACTERS: Final = 8_192

USERNAME: Final = r"[A-Za-z0-9._-]{1,30}"
_USERNAME = re.compile(USERNAME)
# In paths and in the proxy these two mean "the caller".
RESERVED: Final = frozenset({"me", "AUTH"})


def is_username(text: str) -> bool:
    """Whether a text can be somebody's name."""
    return _USERNAME.fullmatch(text) is not None and text not in RESERVED


class Claims(msgspec.Struct, frozen=True):
    """What we read of a token. Other claims may be there and mean nothing here."""

    username: str
    role: Role
    iat: int | float
    exp: int | float
    iat_ms: int | None = None
    nbf: int | float | None = None
    aud: Any = None
    groups: Any = None  # other issuers may mean anything by it

    def group_names(self) -> tuple[str, ...] | None:
        """The groups the token names; None if it does not speak of groups in a way we understand."""
        if not isinstance(self.groups, list):
            return None
        return tuple(group for group in self.groups if isinstance(group, str))

    def issued_ms(self) -> int:
        """When the token was issued, never later than it truly was.

        `iat` usually has whole seconds: such a token may have been issued at any moment of its second, and is taken as
        from the second's start, so that a cut-off in that second ends it. Ours say the millisecond besides.
        """
        if self.iat_ms is not None and self.iat_ms // 1000 == self.iat:
            return self.iat_ms
        return int(self.iat * 1000)


@dataclass(frozen=True, slots=True)
class Verifier:
    """A key and the one algorithm it is for."""

    algorithm: Literal["HS256", "RS256", "ES256"]
    key: bytes | rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class Tokens:
    """Signs with our secret; believes our secret's tokens and those of one other issuer, if configured."""

    def __init__(self, secret: str, public_key: Path | None = None) -> None:
        self._secret = secret.encode()
        self._verifiers = [Verifier("HS256", self._secret)]
        if public_key is not None:
            self._verifiers.append(read_public_key(public_key))
        self._jws = jwt.PyJWS()

    def issue(self, username: str, role: Role, at_ms: int, more: dict[str, Any]) -> str:
        """A token that is good for `ACCESS_TOKEN_SECONDS` from `at_ms`."""
        if not is_username(username) or role not in ROLES:
            raise ValueError("a token is for a username and one of the roles")
        issued = at_ms // 1000
        ours = {"user_id": username, "username": username, "role": role}
        times = {"iat": issued, "iat_ms": at_ms, "exp": issued + ACCESS_TOKEN_SECONDS}
        payload = msgspec.json.encode({**more, **ours, **times})
        return self._jws.encode(payload, self._secret, algorithm="HS256", headers={"typ": "JWT"})

    def read(self, token: str, now: float) -> Claims:
        """The claims of a token that is good now; otherwise `Unauthenticated`."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise invalid()
        try:
            claims = msgspec.json.decode(self._payload(token), type=Claims)
        except (msgspec.DecodeError, UnicodeDecodeError):  # a payload that is no JSON, or not of this shape
            raise invalid() from None
        if not is_username(claims.username):
            raise invalid()
        # A token for a named audience is for somebody else: we have no audience name of our own (RFC 7519, 4.1.3).
        if claims.aud is not None or claims.iat > now + MAX_CLOCK_SKEW_SECONDS:
            raise invalid()
        if claims.nbf is not None and claims.nbf > now + MAX_CLOCK_SKEW_SECONDS:
            raise invalid()
        return claims

    def _payload(self, token: str) -> bytes:
        for verifier in self._verifiers:
            try:
                payload = self._jws.decode(token, verifier.key, algorithms=[verifier.algorithm])
            except (jwt.PyJWTError, ValueError):  # ValueError: a header that is valid base64 but no text
                continue
            assert isinstance(payload, bytes)
            return payload
        raise invalid()


def invalid() -> Unauthenticated:
    """One answer for every way a token can be wrong: a prober learns nothing from it."""
    return Unauthenticated("The token is not valid.")


def read_public_key(path: Path) -> Verifier:
    """The key in a PEM file, with the algorithm that follows from its kind."""
    name = "PLAZA_JWT_PUBLIC_KEY"
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise SettingError(f"{name} cannot be read: {error.strerror}.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SettingError(f"{name} must be a PEM file of a public key.") from None
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < 2048:  # RFC 7518, 3.3
            raise SettingError(f"{name} is an RSA key of {key.key_size} bits; at least 2048 are needed.")
        return Verifier("RS256", key)
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return Verifier("ES256", key)
    raise SettingError(f"{name} must be an RSA key (RS256) or an EC key on P-256 (ES256).")
