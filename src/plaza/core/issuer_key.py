"""The public key of another issuer of tokens: RS256 or ES256, checked by PyJWT.

Only a process with `PLAZA_JWT_PUBLIC_KEY` imports this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from plaza.core.errors import SettingError
from plaza.core.hs256 import InvalidToken

_JWS = jwt.PyJWS()


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key, and the algorithm that it decides."""

    algorithm: Literal["RS256", "ES256"]
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey

    def verify(self, token: str) -> bytes:
        """Return the payload of a token. Raises `InvalidToken`."""
        try:
            payload = _JWS.decode(token, self.key, algorithms=[self.algorithm])
        except (jwt.PyJWTError, ValueError, RecursionError):  # ValueError: a header that is valid base64 but not text
            raise InvalidToken from None
        assert isinstance(payload, bytes)
        return payload


def read_public_key(path: Path) -> IssuerKey:
    """Read a key from a PEM file. Its type decides the algorithm."""
    name = "PLAZA_JWT_PUBLIC_KEY"
    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise SettingError(f"{name} cannot be read: {error.strerror}.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SettingError(f"{name} must be a PEM file with a public key.") from None
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < 2048:  # RFC 7518, 3.3
            raise SettingError(f"{name} is an RSA key of {key.key_size} bits; it needs at least 2048.")
        return IssuerKey("RS256", key)
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
        return IssuerKey("ES256", key)
    raise SettingError(f"{name} must be an RSA key (RS256) or an EC key on P-256 (ES256).")
