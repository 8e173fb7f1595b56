"""Decides what a caller may do with a key, from the key's declaration alone.

There are three kinds of callers: a user, an admin with a token, and a server with the API key. A user reads public keys
and their own. An admin also reads what is marked for admins. A server reads everything but secrets. Only profiles are
writable, by their user or by a server.

Names are the documented ones in every layout: `post:<id>:likes` is matched as such, and written with braces if Valkey
is a cluster. A name that no catalogue declares is refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Final

from msgspec import Struct

from plaza.core.auth import Actor
from plaza.core.keyspace import Catalogue, HashField, HiddenWhile, Key, KeyAccess, Layout
from plaza.core.tokens import RESERVED
from plaza.keyspace.family_matching import KeyFamilies
from plaza.keyspace.proxy.commands import MAX_ARGUMENT_CHARACTERS, ParsedCommand, Refused

# The part of a pattern that names the user a key belongs to. `me` and `AUTH` in its place mean the caller.
OWNER_PART: Final = "username"
# The commands allowed on another user's profile: they name each field, so each field can be checked.
FIELD_READS: Final = frozenset({"HGET", "HMGET"})
# The commands allowed on a set whose members are not public: they return no member, or name each member.
SIZE_READS: Final = frozenset({"SCARD", "EXISTS", "TYPE", "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"})
MEMBERSHIP_READS: Final = frozenset({"SISMEMBER", "SMISMEMBER"})
MAX_FIELD_NAME_CHARACTERS: Final = 64
# A declared field of at most this length is a single line.
MAX_LINE_CHARACTERS: Final = 200


class CallerKind(IntEnum):
    USER = 0
    ADMIN = 1
    SERVER = 2


class Caller(Struct, frozen=True):
    """The caller of the proxy. A server has no name and therefore no keys of its own."""

    name: str | None
    kind: CallerKind

    @classmethod
    def from_actor(cls, actor: Actor) -> Caller:
        if actor.via_key:
            return cls(None, CallerKind.SERVER)
        return cls(actor.name, CallerKind.ADMIN if actor.is_admin else CallerKind.USER)


class TargetKey(Struct, frozen=True):
    """A key that a caller named: its declaration, the ids in its name, and the caller's relation to it."""

    key: Key
    parts: tuple[str, ...]
    is_own: bool
    caller: CallerKind
    caller_name: str | None = None

    def name(self, layout: Layout) -> str:
        return self.key.name(layout, *self.parts)

    def allows(self, access: KeyAccess) -> bool:
        """Whether the caller has this access."""
        if access is KeyAccess.PUBLIC or access is KeyAccess.MEMBERSHIP:
            return True
        if access is KeyAccess.SELF:
            return self.is_own or self.caller is CallerKind.SERVER
        return access is KeyAccess.ADMIN and self.caller >= CallerKind.ADMIN

    def can_read_field(self, field: str) -> bool:
        """Whether the caller may read a field of this hash."""
        return self.allows(self._declaration(field).read)

    def _declaration(self, field: str) -> HashField:
        """The declaration of a field. An undeclared field of a profile belongs to its user; any other is for admins."""
        if (declared := _declared_fields(self.key).get(field)) is not None:
            return declared
        if not self.key.fields:
            return HashField(field, "", self.key.read)
        custom = KeyAccess.SELF if self.key.write is KeyAccess.SELF else KeyAccess.ADMIN
        return HashField(field, "", read=custom, write=self.key.write)

    @property
    def has_private_fields(self) -> bool:
        """Whether the hash has declared fields that only another user may read."""
        return not self.allows(KeyAccess.SELF) and any(f.read is KeyAccess.SELF for f in self.key.fields)

    def is_encrypted(self, field: str) -> bool:
        """Whether Plaza encrypts a field of this hash."""
        return field in _encrypted_fields(self.key)

    def recorded_changes(self, fields: Sequence[str]) -> set[str]:
        """The actions of the security log for a write of these fields."""
        return {action for field in fields if (action := self._declaration(field).recorded_as)}

    def declares_any(self, fields: Sequence[str]) -> bool:
        """Whether any of these fields is declared, and so not a custom one."""
        return not _declared_fields(self.key).keys().isdisjoint(fields)

    def check_read(self, command: ParsedCommand) -> None:
        """Refuse a read that the declaration does not allow."""
        key = self.key
        if not self.allows(key.read):
            raise Refused(f"ERR not allowed: {key.pattern} is for {key.read.value}")
        self._check_type(command)
        if key.read is KeyAccess.MEMBERSHIP and self.caller < CallerKind.ADMIN:
            self._check_membership(command)
        if not key.fields or key.type != "hash":
            return
        if self.has_private_fields and command.spec.name not in FIELD_READS:
            raise Refused(f"ERR not allowed: of another's {key.pattern} only HGET and HMGET of public fields")
        for field in command.fields:
            if not self.can_read_field(field):
                raise Refused(f"ERR not allowed: the field '{field[:MAX_FIELD_NAME_CHARACTERS]}' is not public")

    def _check_membership(self, command: ParsedCommand) -> None:
        """Refuse a user's read of a set that would show who else is in it."""
        own = self.key.element_regex.replace(f"<{OWNER_PART}>", self.caller_name or "")
        members = command.by_kind.get("member", [])
        asks_for_own = command.spec.name in MEMBERSHIP_READS and all(member == own for member in members)
        if command.spec.name not in SIZE_READS and not asks_for_own:
            raise Refused(f"ERR not allowed: of {self.key.pattern} only SCARD, and SISMEMBER of {own}")

    def check_write(self, command: ParsedCommand) -> None:
        """Refuse a write that the declaration does not allow."""
        if not self.allows(self.key.write) or self.key.write is not KeyAccess.SELF:
            raise Refused(f"ERR not allowed: {self.key.pattern} is read-only here")
        self._check_type(command)
        values = command.by_kind.get("value", [])
        for i, name in enumerate(command.fields):
            field = self._declaration(name)
            if not self.allows(field.write) or self._is_reserved(name):
                raise Refused(f"ERR not allowed: the field '{name[:MAX_FIELD_NAME_CHARACTERS]}' is read-only here")
            if field.encrypted and not values and command.spec.name != "HDEL":
                raise Refused(f"ERR not allowed: the field '{name}' is encrypted and has no number")
            if field in self.key.fields and values:
                _check_text(field, values[i])

    def _check_type(self, command: ParsedCommand) -> None:
        # Checked before anything is sent: the field rules of hashes must not be applied to a set, or the reverse.
        if command.spec.key_type not in (None, self.key.type):
            raise Refused("WRONGTYPE Operation against a key holding the wrong kind of value")

    def _is_reserved(self, name: str) -> bool:
        """Whether a custom name is invalid, or looks like a read-only field: `Role`, `post_count`."""
        if name in _declared_fields(self.key):
            return False
        if len(name) > MAX_FIELD_NAME_CHARACTERS or not name.isprintable():
            return True
        return _folded(name) in _folded_read_only_fields(self.key)


@cache
def _declared_fields(key: Key) -> dict[str, HashField]:
    return {field.name: field for field in key.fields}


@cache
def _folded_read_only_fields(key: Key) -> frozenset[str]:
    return frozenset(_folded(field.name) for field in key.fields if field.write is KeyAccess.NONE)


@cache
def _encrypted_fields(key: Key) -> frozenset[str]:
    return frozenset(field.name for field in key.fields if field.encrypted)


def _folded(name: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", name).casefold() if c.isalnum())


def _check_text(field: HashField, value: str) -> None:
    """Refuse a value that the HTTP routes would not accept for this field either."""
    if len(value) > field.max_length:
        raise Refused(f"ERR {field.name} has at most {field.max_length} characters")
    allowed = "" if field.max_length <= MAX_LINE_CHARACTERS else "\n\t\r"
    if any(unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in allowed for c in value):
        raise Refused(f"ERR {field.name} must not contain control characters")


class AccessRules:
    """Finds the key that a caller names, and what may hide it."""

    def __init__(self, catalogues: Sequence[Catalogue]) -> None:
        self._families = KeyFamilies(catalogues, Layout.PLAIN)
        self._by_pattern = {key.pattern: key for catalogue in catalogues for _, key in catalogue}

    def target(self, caller: Caller, name: str) -> TargetKey:
        """The key that a name means for a caller."""
        match = self._families.match(name) if len(name) <= MAX_ARGUMENT_CHARACTERS else None
        if match is None:
            raise Refused(f"ERR not allowed: no such key as '{name[:MAX_FIELD_NAME_CHARACTERS]}'")
        key, parts, is_own = match[0].key, match[1], False
        if OWNER_PART in key.parts:
            index = key.parts.index(OWNER_PART)
            if parts[index] in RESERVED:
                if caller.name is None:
                    raise Refused("ERR the API key has no user: name one instead of me or AUTH")
                parts = (*parts[:index], caller.name, *parts[index + 1 :])
            is_own = parts[index] == caller.name
        return TargetKey(key, parts, is_own, caller.kind, caller.name)

    def hiding_hash(self, target: TargetKey) -> tuple[TargetKey, str] | None:
        """The hash of the same owner, and the field in it, that hide the key from this caller if the field exists."""
        hidden = target.key.hidden
        if hidden is None or hidden.via or target.caller >= CallerKind.ADMIN:
            return None
        key = self._by_pattern[hidden.pattern]
        ids = dict(zip(target.key.parts, target.parts, strict=True))
        return TargetKey(key, tuple(ids[part] for part in key.parts), target.is_own, target.caller), hidden.field

    def hiding_reference(self, target: TargetKey) -> tuple[Key, HiddenWhile] | None:
        """The same for a hash of another owner, whose id is in the field `via` of the key itself."""
        hidden = target.key.hidden
        if hidden is None or not hidden.via or target.caller >= CallerKind.ADMIN:
            return None
        return self._by_pattern[hidden.pattern], hidden
