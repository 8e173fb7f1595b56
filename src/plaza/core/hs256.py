"""JSON Web Tokens signed with a secret (HS256), signed and verified with `hmac`.

PyJWT takes six times as long for the same checks. Anything that is not exactly what an issuer of HS256 tokens writes
is refused: another algorithm or type of token in the header, critical extensions (Plaza implements none), and text that
is not unpadded base64url in its one canonical form (RFC 7515, 2).
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Final

import msgspec

ALGORITHM: Final = "HS256"

# A public key is no secret. With its text as one, anybody could sign tokens.
_KEY_FILE: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----|^\s*(?:ssh-|ecdsa-|sk-ssh-|sk-ecdsa-)")

# An issuer writes the same header into every token.
_CACHED_HEADERS: Final = 64


class InvalidToken(Exception):
    """The token is malformed, or its signature is not valid."""


class JoseHeader(msgspec.Struct, frozen=True):
    """The parameters of a token's header that decide whether it is accepted."""

    alg: str
    typ: str | None = None
    kid: str = ""
    crit: Any = msgspec.UNSET
    b64: Any = msgspec.UNSET


class Hs256:
    """Signs and verifies tokens with one secret.

    `typ` is the type in the header of signed tokens. `accepts` are the types of verified ones, in lower case; None: a
    token may have no type.
    """

    def __init__(self, secret: bytes, *, typ: str, accepts: Collection[str | None]) -> None:
        if not secret or _KEY_FILE.search(secret):
            raise ValueError("It is empty, or the text of a key file.")
        self._secret = secret
        self._accepts = frozenset(accepts)
        self._header = _encoded(msgspec.json.encode({"alg": ALGORITHM, "typ": typ})) + b"."
        self._is_accepted = lru_cache(_CACHED_HEADERS)(self._check_header)

    def sign(self, payload: bytes) -> str:
        """Return a token with a payload."""
        signed = self._header + _encoded(payload)
        return (signed + b"." + self._signature(signed)).decode()

    def verify(self, token: str) -> bytes:
        """Return the payload of a token. Raises `InvalidToken`."""
        try:
            signed, _, signature = token.encode("ascii").rpartition(b".")
        except UnicodeEncodeError:
            raise InvalidToken from None
        # Compared as text, so that one signature has one form.
        if not hmac.compare_digest(signature, self._signature(signed)):
            raise InvalidToken
        header, _, payload = signed.partition(b".")
        if not self._is_accepted(header):
            raise InvalidToken
        return _decoded(payload)

    def _signature(self, signed: bytes) -> bytes:
        return _encoded(hmac.digest(self._secret, signed, "sha256"))

    def _check_header(self, encoded: bytes) -> bool:
        try:
            header = msgspec.json.decode(_decoded(encoded), type=JoseHeader)
        except (InvalidToken, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        typ = None if header.typ is None else header.typ.lower().removeprefix("application/")
        has_extensions = header.crit is not msgspec.UNSET or header.b64 is not msgspec.UNSET
        return header.alg == ALGORITHM and typ in self._accepts and not has_extensions


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    try:
        data = urlsafe_b64decode(text + b"==")
    except ValueError:
        raise InvalidToken from None
    if _encoded(data) != text:  # another alphabet, padding, or bits that mean nothing
        raise InvalidToken
    return data
