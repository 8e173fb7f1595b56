"""The ciphers of `encryption.py`, which imports them when the first value is encrypted or decrypted."""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from plaza.core.encryption import Cipher

_NONCE_BYTES: Final = 12


class GcmCipher(Cipher):
    """AES-256-GCM. A nonce precedes the sealed text."""

    def __init__(self, secret: str) -> None:
        self._key = AESGCM(_derive(secret, b"plaza values v1", 32))

    def seal(self, text: bytes, context: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._key.encrypt(nonce, text, context)

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        try:
            return self._key.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
        except InvalidTag as error:
            raise ValueError from error


class SivCipher(Cipher):
    """AES-256-SIV."""

    def __init__(self, secret: str) -> None:
        self._key = AESSIV(_derive(secret, b"plaza fields v1", 64))

    def seal(self, text: bytes, context: bytes) -> bytes:
        return self._key.encrypt(text, [context])

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        try:
            return self._key.decrypt(sealed, [context])
        except InvalidTag as error:
            raise ValueError from error


def _derive(secret: str, use: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length=length, salt=None, info=use).derive(secret.encode())
