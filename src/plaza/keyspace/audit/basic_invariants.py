"""The invariants of every key: it is declared, and its type, lifetime, members, values and fields are as declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import REPORT_ONLY, Command, Entry, Invariant
from plaza.core.keyspace import Key
from plaza.keyspace.family_matching import KeyFamily

# PTTL of a key that was just written may be a few milliseconds above the declared lifetime.
GRACE_MS = 1_000

UNKNOWN = "unknown"
TYPE = "type"
LIFETIME = "lifetime"
MEMBER = "member"
VALUE = "value"
FIELD = "field"
RETIRED = "retired"

# These are checked without reading the key's content, because the wrong type would make the read fail.
CONTENT_FREE = frozenset((UNKNOWN, TYPE, LIFETIME))

_UNDECLARED_KEY = Key("<name>", "string", "A key that no catalogue declares.")
UNDECLARED = KeyFamily("", _UNDECLARED_KEY, {"name": ".+"}, {})


def _reads_nothing(entry: Entry) -> Sequence[Command]:
    return ()


def unknown() -> Invariant:
    """No key exists that no catalogue declares."""
    return Invariant(
        UNKNOWN, _UNDECLARED_KEY, _reads_nothing, lambda entry, replies, now: "no catalogue declares it", per_key=True
    )


def type_invariant(key: Key) -> Invariant:
    """The key has its declared type."""

    def reads(entry: Entry) -> Sequence[Command]:
        return (("TYPE", entry.name),)

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] in (key.type, "none") else f"is a {replies[0]}, not a {key.type}"

    return Invariant(TYPE, key, reads, check, per_key=True)


def lifetime_violation(key: Key, left_ms: int) -> str | None:
    """What is wrong with the PTTL of a key (-1: it does not expire, -2: it does not exist); None if nothing."""
    if left_ms == -2:
        return None
    if key.ttl_seconds is None:
        return "expires, but must not" if left_ms >= 0 else None
    if left_ms == -1:
        return None if key.ttl_optional else "does not expire, but must"
    if left_ms > key.ttl_seconds * 1000 + GRACE_MS:
        return f"expires in {left_ms // 1000} s, later than {key.ttl_seconds} s"
    return None


def lifetime_invariant(key: Key) -> Invariant:
    """The key expires as declared."""

    def reads(entry: Entry) -> Sequence[Command]:
        return (("PTTL", entry.name),)

    return Invariant(
        LIFETIME, key, reads, lambda entry, replies, now: lifetime_violation(key, replies[0]), per_key=True
    )


def retired_invariant(key: Key) -> Invariant:
    """No key of a family that only an earlier release used exists."""
    says = "is a key of an earlier release, which this one does not use"
    return Invariant(RETIRED, key, _reads_nothing, lambda entry, replies, now: says, per_key=True, own_keys=True)


def member_invariant(family: KeyFamily) -> Invariant:
    """Each member has the declared shape. In a documented key another service wrote it, so it is only reported."""

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        assert family.element_shape is not None
        if family.element_shape.read(entry.member) is not None:
            return None
        return f"holds {entry.member[:80]!r}, which is not a valid {family.key.contains or 'member'}"

    return Invariant(MEMBER, family.key, _reads_nothing, check, _repair_of_shape(family))


def value_invariant(family: KeyFamily) -> Invariant:
    """Each value of a hash has the declared shape. As with members, it is only reported in a documented key."""

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        assert family.value_shape is not None
        if family.value_shape.read(entry.value) is not None:
            return None
        return f"has the invalid value {str(entry.value)[:80]!r} for {entry.member}"

    return Invariant(VALUE, family.key, _reads_nothing, check, _repair_of_shape(family))


def _repair_of_shape(family: KeyFamily) -> str:
    return REPORT_ONLY if family.key.document else ""


def fields_invariant(family: KeyFamily) -> Invariant:
    """A hash has its required fields, and each field has the declared shape."""
    needed = [f.name for f in family.key.fields if f.required]
    shapes = list(family.fields.items())

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        fields = entry.value
        for name in needed:
            if name not in fields:
                return f"has no {name}"
        for name, shape in shapes:
            if name in fields and shape.read(fields[name]) is None:
                return f"{name} has the invalid value {fields[name][:80]!r}"
        return None

    return Invariant(FIELD, family.key, _reads_nothing, check, per_key=True)
