"""What is checked of every key, whatever it is: that it is declared, its type, its lifetime, its content's looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.keyspace import Key
from plaza.keyspace.families import Family

# A key whose time to live was set a moment ago may show a few milliseconds more than it was given.
GRACE_MS = 1_000

UNKNOWN = "unknown"
TYPE = "type"
LIFETIME = "lifetime"
MEMBER = "member"
VALUE = "value"
FIELD = "field"

# These look at the key from outside; asking what it holds could be the very error.
BLIND = frozenset((UNKNOWN, TYPE, LIFETIME))

_NOBODYS = Key("<name>", "string", "A key that nobody declared.")
STRANGER = Family("", _NOBODYS, {"name": ".+"}, {})


def _asks_nothing(entry: Entry) -> Sequence[Command]:
    return ()


def unknown() -> Invariant:
    """Of a key that is in no catalogue. That it is still there when looked at again is all there is to it."""
    return Invariant(
        UNKNOWN, _NOBODYS, _asks_nothing, lambda entry, replies, now: "nobody declared this key", whole=True
    )


def of_type(key: Key) -> Invariant:
    def asks(entry: Entry) -> Sequence[Command]:
        return (("TYPE", entry.name),)

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] in (key.type, "none") else f"is a {replies[0]}, not a {key.type}"

    return Invariant(TYPE, key, asks, judge, whole=True)


def lifetime(key: Key, left_ms: int) -> str | None:
    """What is wrong with a time to live (-1: none, -2: no such key)."""
    if left_ms == -2:
        return None
    if key.ttl_seconds is None:
        return "expires, and must not" if left_ms >= 0 else None
    if left_ms == -1:
        return None if key.may_stay else "does not expire, and must"
    if left_ms > key.ttl_seconds * 1000 + GRACE_MS:
        return f"expires in {left_ms // 1000} s, later than {key.ttl_seconds} s"
    return None


def of_lifetime(key: Key) -> Invariant:
    def asks(entry: Entry) -> Sequence[Command]:
        return (("PTTL", entry.name),)

    return Invariant(LIFETIME, key, asks, lambda entry, replies, now: lifetime(key, replies[0]), whole=True)


def of_member(family: Family) -> Invariant:
    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        assert family.holds is not None
        if family.holds.read(entry.member) is not None:
            return None
        return f"holds {entry.member[:80]!r}, which is no {family.key.of or 'member'}"

    return Invariant(MEMBER, family.key, _asks_nothing, judge)


def of_value(family: Family) -> Invariant:
    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        assert family.value is not None
        if family.value.read(entry.value) is not None:
            return None
        return f"has {str(entry.value)[:80]!r} for {entry.member}, which cannot be"

    return Invariant(VALUE, family.key, _asks_nothing, judge)


def of_fields(family: Family) -> Invariant:
    """Of a hash with fields: those it needs are there, and each looks as it should."""
    needed = [f.name for f in family.key.fields if f.needed]
    shapes = list(family.fields.items())

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        fields = entry.value
        for name in needed:
            if name not in fields:
                return f"has no {name}"
        for name, shape in shapes:
            if name in fields and shape.read(fields[name]) is None:
                return f"{name} is {fields[name][:80]!r}, which cannot be"
        return None

    return Invariant(FIELD, family.key, _asks_nothing, judge, whole=True)
