"""Encrypts values before they are stored, with a key that is not in Valkey.

A copy of the database alone reveals nothing. `context` binds a value to its use, so that one cannot be moved to another
account or field. The first data key encrypts; earlier ones still decrypt, until everything is encrypted again
(`plaza data-key reencrypt`).
"""

from __future__ import annotations

import base64
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from plaza.core.keyspace import Key, Layout

_NONCE_BYTES: Final = 12

C = TypeVar("C")


class Undecryptable(Exception):
    """The value was encrypted with another key or is damaged."""


class EncryptionScheme(ABC, Generic[C]):
    """A way to encrypt short texts with `ciphers`, one for each data key, the current one first.

    Stored values start with `prefix`, so that another scheme can follow later.
    """

    prefix: ClassVar[str]
    ciphers: Sequence[C]

    @abstractmethod
    def seal(self, cipher: C, text: bytes, context: bytes) -> bytes: ...

    @abstractmethod
    def unseal(self, cipher: C, sealed: bytes, context: bytes) -> bytes: ...

    def encrypt(self, text: str, context: str) -> str:
        """Return the encrypted text, safe to store. `context` names its use, such as `totp`."""
        sealed = self.seal(self.ciphers[0], text.encode(), context.encode())
        return self.prefix + base64.urlsafe_b64encode(sealed).decode()

    def decrypt(self, stored: str, context: str) -> str:
        """Return the text, or raise `Undecryptable`."""
        return self._decrypt(stored, context)[0]

    def renew(self, stored: str, context: str) -> str:
        """Return a value encrypted with the current key: the same one if it was already. Raises `Undecryptable`."""
        text, is_current = self._decrypt(stored, context)
        return stored if is_current else self.encrypt(text, context)

    def is_encrypted(self, stored: str) -> bool:
        return stored.startswith(self.prefix)

    def _decrypt(self, stored: str, context: str) -> tuple[str, bool]:
        """Return the text, and whether the current key encrypted it."""
        if not self.is_encrypted(stored):
            raise Undecryptable
        try:
            sealed = base64.urlsafe_b64decode(stored.removeprefix(self.prefix))
        except ValueError as error:
            raise Undecryptable from error
        for cipher in self.ciphers:
            try:
                return self.unseal(cipher, sealed, context.encode()).decode(), cipher is self.ciphers[0]
            except (InvalidTag, ValueError):
                continue
        raise Undecryptable


class Encryption(EncryptionScheme[AESGCM]):
    """AES-256-GCM with a random nonce: equal texts look different."""

    prefix = "v1:"

    def __init__(self, secrets: Sequence[str]) -> None:
        self.ciphers = [AESGCM(_derive(secret, b"plaza values v1", 32)) for secret in secrets]

    def seal(self, cipher: AESGCM, text: bytes, context: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + cipher.encrypt(nonce, text, context)

    def unseal(self, cipher: AESGCM, sealed: bytes, context: bytes) -> bytes:
        return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)


class FieldEncryption(EncryptionScheme[AESSIV]):
    """AES-256-SIV (RFC 5297), for fields that are compared: writing a text again stores the same value."""

    prefix = "plaza-enc-v1:"

    def __init__(self, secrets: Sequence[str]) -> None:
        self.ciphers = [AESSIV(_derive(secret, b"plaza fields v1", 64)) for secret in secrets]

    def seal(self, cipher: AESSIV, text: bytes, context: bytes) -> bytes:
        return cipher.encrypt(text, [context])

    def unseal(self, cipher: AESSIV, sealed: bytes, context: bytes) -> bytes:
        return cipher.decrypt(sealed, [context])

    def read(self, stored: str, context: str) -> str | None:
        """Return the text of a field, also of one that another service wrote in plain text; None if unreadable."""
        try:
            return self.decrypt(stored, context) if self.is_encrypted(stored) else stored
        except Undecryptable:
            return None


def field_context(key: Key, ids: Sequence[str], field: str) -> str:
    """Return the context of a field of a hash: the same on one server and on a cluster."""
    return f"{key.name(Layout.PLAIN, *ids)} {field}"


def _derive(secret: str, use: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length=length, salt=None, info=use).derive(secret.encode())


# (ids in the key's name, field, stored value, whether to encrypt plain text too) → the value under the current data key
Renew = Callable[[tuple[str, ...], str, str, bool], str]


@dataclass(frozen=True, slots=True)
class EncryptedFields:
    """The fields of a hash that a domain encrypts, and how it renews one. `renew` raises `Undecryptable`."""

    key: Key
    fields: tuple[str, ...]
    renew: Renew
