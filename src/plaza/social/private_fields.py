"""Encrypts the identity and bank numbers of profiles, and decrypts them for their user.

Other services may have written them in plain text, as the document says. Their user sees such a value as it is, and it
stays as it is until the user or an operator changes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from plaza.core.encryption import EncryptedFields, FieldEncryption, Undecryptable, field_context
from plaza.social.keys import ENCRYPTED, USER
from plaza.social.model import User, user_from_hash


class PrivateFields:
    """Profiles as they are stored, and as their user sees them. No I/O."""

    def __init__(self, encryption: FieldEncryption) -> None:
        self._encryption = encryption

    def stored(self, username: str, changes: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return changes of a profile as they are stored. None still removes a field."""
        return {
            field: self._encrypt(username, field, value) if value is not None and field in ENCRYPTED else value
            for field, value in changes.items()
        }

    def own_profile(self, fields: Mapping[str, str], username: str) -> User:
        """Return a profile for its user, with private fields; without those that no data key decrypts."""
        user = user_from_hash(fields, username, private=True)
        for field in ENCRYPTED:
            if (stored := fields.get(field)) is not None:
                setattr(user, field, self._encryption.read(stored, _context(username, field)))
        return user

    def moved(self, profile: Mapping[str, str], old: str, new: str) -> dict[str, str]:
        """Return a stored profile for another username, to which its values are then bound."""
        return {
            field: self._move(field, value, old, new) if field in ENCRYPTED else value
            for field, value in profile.items()
        }

    def encrypted_fields(self) -> EncryptedFields:
        return EncryptedFields(USER, ENCRYPTED, self._renew)

    def _encrypt(self, username: str, field: str, text: str) -> str:
        return self._encryption.encrypt(text, _context(username, field))

    def _move(self, field: str, stored: str, old: str, new: str) -> str:
        try:
            return self._encrypt(new, field, self._encryption.decrypt(stored, _context(old, field)))
        except Undecryptable:  # or plain text of another service
            return stored

    def _renew(self, ids: tuple[str, ...], field: str, stored: str, plain_too: bool) -> str:
        if self._encryption.is_encrypted(stored):
            return self._encryption.renew(stored, _context(ids[0], field))
        return self._encrypt(ids[0], field, stored) if plain_too else stored


def _context(username: str, field: str) -> str:
    return field_context(USER, (username,), field)
