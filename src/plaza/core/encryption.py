"""Encrypts values before they are stored, with a key that is not in Valkey.

A copy of the database alone reveals nothing. `context` binds a value to its use, so that one cannot be moved to another
account or field. The first data key encrypts; earlier ones still decrypt, until everything is encrypted again
(`plaza data-key reencrypt`).
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar

from msgspec import Struct

from plaza.core.keyspace import Key, Layout


class Undecryptable(Exception):
    """The value was encrypted with another key or is damaged."""


class Cipher(ABC):
    """Encrypts and decrypts bytes with one data key."""

    @abstractmethod
    def seal(self, text: bytes, context: bytes) -> bytes: ...

    @abstractmethod
    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        """Return the text, or raise `ValueError`."""


class EncryptionScheme(ABC):
    """A way to encrypt short texts with ciphers, one for each data key, the current one first.

    Stored values start with `prefix`, so that another scheme can follow later.
    """

    prefix: ClassVar[str]

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets

    @cached_property
    def _ciphers(self) -> Sequence[Cipher]:
        return [self.cipher(secret) for secret in self._secrets]

    @abstractmethod
    def cipher(self, secret: str) -> Cipher:
        """Return the cipher of a data key. Made when it is first used, and the library imported: 30 ms of a start."""

    def encrypt(self, text: str, context: str) -> str:
        """Return the encrypted text, safe to store. `context` names its use, such as `totp`."""
        sealed = self._ciphers[0].seal(text.encode(), context.encode())
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
        for cipher in self._ciphers:
            try:
                return cipher.unseal(sealed, context.encode()).decode(), cipher is self._ciphers[0]
            except ValueError:
                continue
        raise Undecryptable


class Encryption(EncryptionScheme):
    """AES-256-GCM with a random nonce: equal texts look different."""

    prefix = "v1:"

    def cipher(self, secret: str) -> Cipher:
        from plaza.core.ciphers import GcmCipher

        return GcmCipher(secret)


class FieldEncryption(EncryptionScheme):
    """AES-256-SIV (RFC 5297), for fields that are compared: writing a text again stores the same value."""

    prefix = "plaza-enc-v1:"

    def cipher(self, secret: str) -> Cipher:
        from plaza.core.ciphers import SivCipher

        return SivCipher(secret)

    def read(self, stored: str, context: str) -> str | None:
        """Return the text of a field, also of one that another service wrote in plain text; None if unreadable."""
        try:
            return self.decrypt(stored, context) if self.is_encrypted(stored) else stored
        except Undecryptable:
            return None


def field_context(key: Key, ids: Sequence[str], field: str) -> str:
    """Return the context of a field of a hash: the same on one server and on a cluster."""
    return f"{key.name(Layout.PLAIN, *ids)} {field}"


# (ids in the key's name, field, stored value, whether to encrypt plain text too) → the value under the current data key
Renew = Callable[[tuple[str, ...], str, str, bool], str]


class EncryptedFields(Struct, frozen=True):
    """The fields of a hash that a domain encrypts, and how it renews one. `renew` raises `Undecryptable`."""

    key: Key
    fields: tuple[str, ...]
    renew: Renew
