"""Encrypts values before they are stored, with a key that is not in Valkey.

A copy of the database alone reveals nothing. AES-256-GCM with a random nonce; `context` binds a value to its use, so
that one cannot be moved to another field. `v1:` allows another scheme later.
"""

from __future__ import annotations

import base64
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_PREFIX: Final = "v1:"
_NONCE_BYTES: Final = 12


class Undecryptable(Exception):
    """The value was encrypted with another key or is damaged."""


class Encryption:
    """Encrypts short texts with a key derived from a secret."""

    def __init__(self, secret: str) -> None:
        key = HKDF(hashes.SHA256(), length=32, salt=None, info=b"plaza values v1").derive(secret.encode())
        self._cipher = AESGCM(key)

    def encrypt(self, text: str, context: str) -> str:
        """Return the encrypted text, safe to store. `context` names its use, such as `totp`."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, text.encode(), context.encode())
        return _PREFIX + base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, stored: str, context: str) -> str:
        """Return the text, or raise `Undecryptable`."""
        try:
            if not stored.startswith(_PREFIX):
                raise ValueError
            raw = base64.urlsafe_b64decode(stored.removeprefix(_PREFIX))
            return self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode()).decode()
        except (ValueError, InvalidTag) as error:
            raise Undecryptable from error


def is_encrypted(stored: str) -> bool:
    return stored.startswith(_PREFIX)
