"""What a caller may do with a key: nothing but what its declaration says.

Three kinds of callers: a person, an admin by token, a server with the API key. A person reads what is public and what
is their own; an admin also what is marked for admins; a server everything but secrets. Nobody but its person, or a
server, writes a profile, and nothing else is written at all.

Names are the documents', whatever the layout: `post:<id>:likes` is looked up as such and written with braces where
Valkey is a cluster. A name that no family has is refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

from plaza.core.auth import Actor
from plaza.core.keyspace import Catalogue, HashField, HiddenWhile, Key, KeyAccess, Layout
from plaza.core.tokens import RESERVED
from plaza.keyspace.families import KeyFamilies
from plaza.keyspace.proxy.commands import LONGEST_WORD, ParsedCommand, Refused

# The part of a pattern that says whose a key is. In its place `me` and `AUTH` mean the caller.
WHOSE: Final = "username"
# Of a profile that is not one's own, only single fields can be asked for, so that each is looked at.
BY_FIELD: Final = frozenset({"HGET", "HMGET"})
LONGEST_CUSTOM: Final = 64
# A declared field that is no longer than this is one line.
ONE_LINE: Final = 200


class Rank(IntEnum):
    PERSON = 0
    ADMIN = 1
    SERVER = 2


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. A server is nobody: it has no keys of its own."""

    name: str | None
    rank: Rank

    @classmethod
    def by(cls, actor: Actor) -> Caller:
        if actor.via_key:
            return cls(None, Rank.SERVER)
        return cls(actor.name, Rank.ADMIN if actor.is_admin else Rank.PERSON)


@dataclass(frozen=True, slots=True)
class TargetKey:
    """A key that somebody named: its family, the ids in it, and how the caller stands to it."""

    family: Key
    parts: tuple[str, ...]
    own: bool
    rank: Rank

    def name(self, layout: Layout) -> str:
        return self.family.name(layout, *self.parts)

    def allows(self, access: KeyAccess) -> bool:
        """Whether what is marked so is for this caller."""
        if access is KeyAccess.PUBLIC:
            return True
        if access is KeyAccess.SELF:
            return self.own or self.rank is Rank.SERVER
        return access is KeyAccess.ADMIN and self.rank >= Rank.ADMIN

    def shows(self, field: str) -> bool:
        """Whether a field of this hash is for this caller."""
        return self.allows(self._declared(field).read)

    def _declared(self, field: str) -> HashField:
        """The declaration of a field. What a person added to their profile is theirs; any other stranger is not."""
        for declared in self.family.fields:
            if declared.name == field:
                return declared
        if not self.family.fields:
            return HashField(field, "", self.family.read)
        custom = KeyAccess.SELF if self.family.write is KeyAccess.SELF else KeyAccess.ADMIN
        return HashField(field, "", read=custom, write=self.family.write)

    @property
    def private(self) -> bool:
        """Whether there are fields in it that are somebody else's alone."""
        return not self.allows(KeyAccess.SELF) and any(f.read is KeyAccess.SELF for f in self.family.fields)

    def permit_reading(self, asked: ParsedCommand) -> None:
        family, command = self.family, asked.command
        if not self.allows(family.read):
            raise Refused(f"ERR not allowed: {family.pattern} is for {family.read.value}")
        self._require_type(asked)
        if not family.fields or family.type != "hash":
            return
        if self.private and command.name not in BY_FIELD:
            raise Refused(f"ERR not allowed: of another's {family.pattern} only HGET and HMGET of public fields")
        for field in asked.fields:
            if not self.shows(field):
                raise Refused(f"ERR not allowed: the field '{field[:LONGEST_CUSTOM]}' is not public")

    def permit_writing(self, asked: ParsedCommand) -> None:
        if not self.allows(self.family.write) or self.family.write is not KeyAccess.SELF:
            raise Refused(f"ERR not allowed: {self.family.pattern} is not written through here")
        self._require_type(asked)
        values = asked.found.get("value", [])
        for i, name in enumerate(asked.fields):
            field = self._declared(name)
            if not self.allows(field.write) or self._pretends(name):
                raise Refused(f"ERR not allowed: the field '{name[:LONGEST_CUSTOM]}' is not written through here")
            if field in self.family.fields and values:
                _require_text(field, values[i])

    def _require_type(self, asked: ParsedCommand) -> None:
        # Before anything is sent: a rule for hashes is never asked about a set, nor the other way round.
        if asked.command.on not in (None, self.family.type):
            raise Refused("WRONGTYPE Operation against a key holding the wrong kind of value")

    def _pretends(self, name: str) -> bool:
        """Whether a custom name is none, or could be taken for one that is not to be written: `Role`, `post_count`."""
        if any(declared.name == name for declared in self.family.fields):
            return False
        if len(name) > LONGEST_CUSTOM or not name.isprintable():
            return True
        return _folded(name) in _guarded(self.family)


@cache
def _guarded(family: Key) -> frozenset[str]:
    return frozenset(_folded(field.name) for field in family.fields if field.write is KeyAccess.NONE)


def _folded(name: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", name).casefold() if c.isalnum())


def _require_text(field: HashField, value: str) -> None:
    """What a declared field may hold: text of the length that the routes allow, too."""
    if len(value) > field.max_length:
        raise Refused(f"ERR {field.name} has at most {field.max_length} characters")
    allowed = "" if field.max_length <= ONE_LINE else "\n\t\r"
    if any(unicodedata.category(c) in ("Cc", "Zl", "Zp") and c not in allowed for c in value):
        raise Refused(f"ERR {field.name} has no control characters")


class AccessRules:
    """The whole catalogue, asked by name."""

    def __init__(self, catalogues: Sequence[Catalogue]) -> None:
        self._families = KeyFamilies(catalogues, Layout.PLAIN)
        self._by_pattern = {key.pattern: key for catalogue in catalogues for _, key in catalogue}

    def place(self, caller: Caller, name: str) -> TargetKey:
        """Which key a name means to a caller."""
        match = self._families.match(name) if len(name) <= LONGEST_WORD else None
        if match is None:
            raise Refused(f"ERR not allowed: no such key as '{name[:LONGEST_CUSTOM]}'")
        key, parts, own = match[0].key, match[1], False
        if WHOSE in key.parts:
            at = key.parts.index(WHOSE)
            if parts[at] in RESERVED:
                if caller.name is None:
                    raise Refused("ERR the API key is nobody: name a user")
                parts = (*parts[:at], caller.name, *parts[at + 1 :])
            own = parts[at] == caller.name
        return TargetKey(key, parts, own, caller.rank)

    def hiding(self, place: TargetKey) -> tuple[TargetKey, str] | None:
        """The hash, and the field in it, that hide a key from this caller if they are there."""
        hidden = place.family.hidden
        if hidden is None or hidden.via or place.rank >= Rank.ADMIN:
            return None
        family = self._by_pattern[hidden.pattern]
        ids = dict(zip(place.family.parts, place.parts, strict=True))
        return TargetKey(family, tuple(ids[part] for part in family.parts), place.own, place.rank), hidden.field

    def behind(self, place: TargetKey) -> tuple[Key, HiddenWhile] | None:
        """The same where the hash is another owner's, whom a field of the key itself names."""
        hidden = place.family.hidden
        if hidden is None or not hidden.via or place.rank >= Rank.ADMIN:
            return None
        return self._by_pattern[hidden.pattern], hidden
