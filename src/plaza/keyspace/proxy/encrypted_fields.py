"""Encrypts fields that a command writes, and decrypts those that it reads, if they are the caller's own.

A server never sees the text: it gets the encrypted value, also of a field that another service wrote in plain text.
"""

from __future__ import annotations

from plaza.core.encryption import FieldEncryption, field_context
from plaza.core.sequences import pairs
from plaza.keyspace.proxy.access_rules import TargetKey


class EncryptedFieldValues:
    """Values of fields as they are stored, and as a caller sees them. No I/O."""

    def __init__(self, encryption: FieldEncryption) -> None:
        self._encryption = encryption

    def stored(self, target: TargetKey, fields_and_values: list[str]) -> list[str]:
        """Return the arguments of `HSET` with encrypted values."""
        return [
            part
            for field, value in pairs(fields_and_values)
            for part in (field, self._encrypt(target, field, value) if target.is_encrypted(field) else value)
        ]

    def shown(self, target: TargetKey, field: str, stored: bytes | None) -> bytes | None:
        """Return what the caller sees of a field; None if no data key decrypts it."""
        if stored is None or not target.is_encrypted(field):
            return stored
        text = stored.decode(errors="replace")
        if target.is_own:
            read = self._encryption.read(text, field_context(target.key, target.parts, field))
            return None if read is None else read.encode()
        return stored if self._encryption.is_encrypted(text) else self._encrypt(target, field, text).encode()

    def _encrypt(self, target: TargetKey, field: str, text: str) -> str:
        return self._encryption.encrypt(text, field_context(target.key, target.parts, field))
