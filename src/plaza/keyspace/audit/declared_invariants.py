"""The rules that follow from what catalogues say in one line beside a key.

A line often makes a rule for another key: that `post:<post>:likes` is as large as `likesCount` says is checked where
`likesCount` is, since a set that is missing altogether is met by nobody who walks through the keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.keyspace import Belongs, Counts, Formula, Key, Mirrors, Orders, Refers, Scored
from plaza.keyspace.families import Families, Family

SIZE = {"set": "SCARD", "zset": "ZCARD", "list": "LLEN", "hash": "HLEN", "string": "STRLEN", "stream": "XLEN"}
HAS = {"set": "SISMEMBER", "zset": "ZSCORE", "list": "LPOS", "hash": "HEXISTS"}

_PART = re.compile(r"<(\w+)>")
Name = Callable[[Entry], str]


def bind(families: Families, rules: Sequence[Invariant]) -> None:
    """Give every family its rules: those that are declared, and those that a domain adds."""
    patterns = {(family.domain, family.key.pattern): family for family in families.all}
    counters: dict[str, list[tuple[Key, str]]] = {}
    for family in families.all:
        for invariant in family.key.same:
            if isinstance(invariant, Counts):
                counters.setdefault(invariant.pattern, []).append((family.key, invariant.field))
            elif not isinstance(invariant, Formula):
                to = patterns[family.domain, invariant.pattern]
                for found, rule in _MAKERS[type(invariant)](family, invariant, to):
                    _add(found, rule)
    for family in families.all:
        if family.key.pattern in counters:
            _add(family, _counted(family, counters[family.key.pattern]))
    for rule in rules:
        _add(families.of(rule.key), rule)


def _add(family: Family, rule: Invariant) -> None:
    (family.whole if rule.whole else family.each).append(rule)


def _namer(family: Family, to: Key, field: str = "") -> Name:
    """How to name the key that an entry speaks of: by the ids of its member first, then by its own."""
    members = family.holds.parts if family.holds else ()
    if field:
        return lambda entry: to(entry.value.get(field, ""))
    if len(to.parts) == 1 and to.parts[0] in members:
        at = members.index(to.parts[0])
        return lambda entry: to(entry.ids[at])
    if to.parts == family.key.parts:
        return lambda entry: to(*entry.parts)

    def name(entry: Entry) -> str:
        ids = dict(zip(family.key.parts, entry.parts, strict=True)) | dict(zip(members, entry.ids, strict=True))
        return to(*(ids[part] for part in to.parts))

    return name


def _counted(to: Family, counts: Sequence[tuple[Key, str]]) -> Invariant:
    """All counters of a hash, each the size of a key of the same owner."""

    def asks(entry: Entry) -> Sequence[Command]:
        return [(SIZE[key.type], key(*entry.parts)) for key, _ in counts]

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        for (key, field), size in zip(counts, replies, strict=True):
            if entry.value.get(field, "0") != str(size):
                return f"{field} is {entry.value.get(field)}, and `{key(*entry.parts)}` has {size}"
        return None

    return Invariant("count", to.key, asks, judge, whole=True)


def _mirrored(family: Family, says: Mirrors, to: Family) -> list[tuple[Family, Invariant]]:
    name, has = _namer(family, to.key), HAS[to.key.type]
    template, order = _PART.sub("%s", to.key.holds), [family.key.parts.index(p) for p in _PART.findall(to.key.holds)]

    def asks(entry: Entry) -> Sequence[Command]:
        return ((has, name(entry), template % tuple(entry.parts[i] for i in order)),)

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is None or (has != "ZSCORE" and not replies[0]):
            return f"has {entry.member}, but `{name(entry)}` does not say so"
        if says.alike and float(replies[0]) != entry.value:
            return f"has {entry.member} at {entry.value:.0f}, and `{name(entry)}` at {replies[0]:.0f}"
        return None

    return [(family, Invariant("mirror", family.key, asks, judge, repair=says.repair))]


def _referred(family: Family, says: Refers, to: Family) -> list[tuple[Family, Invariant]]:
    if any(isinstance(other, Scored) and other.pattern == says.pattern for other in family.key.same):
        return []  # whoever compares the score reads the other key anyway
    name = _namer(family, to.key, says.field)

    def asks(entry: Entry) -> Sequence[Command]:
        return (("EXISTS", name(entry)),)

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] else f"names `{name(entry)}`, which does not exist"

    return [(family, Invariant("reference", family.key, asks, judge, repair=says.repair, whole=bool(says.field)))]


def _belonging(family: Family, says: Belongs, to: Family) -> list[tuple[Family, Invariant]]:
    parts = [family.key.parts.index(part) for part in to.key.parts]

    def name(entry: Entry) -> str:
        return to.key(*(entry.parts[i] for i in parts))

    def asks(entry: Entry) -> Sequence[Command]:
        return (("EXISTS", name(entry)),)

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] else f"is there without `{name(entry)}`"

    return [(family, Invariant("orphan", family.key, asks, judge, repair=says.repair, whole=True))]


def _ordered(family: Family, says: Orders, to: Family) -> list[tuple[Family, Invariant]]:
    order, members = family.key, to.key

    def asks_size(entry: Entry) -> Sequence[Command]:
        return ((SIZE[order.type], entry.name), (SIZE[members.type], members(*entry.parts)))

    def judge_size(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        mine, theirs = replies
        return None if mine == theirs else f"has {mine} members, and `{members(*entry.parts)}` has {theirs}"

    def in_order(entry: Entry) -> Sequence[Command]:
        return ((HAS[order.type], order(*entry.parts), entry.member),)

    def in_members(entry: Entry) -> Sequence[Command]:
        return ((HAS[members.type], members(*entry.parts), entry.member),)

    def judge(entry: Entry, replies: Sequence[Any], now: int, there: Key = order) -> str | None:
        missing = replies[0] is None or (HAS[there.type] != "ZSCORE" and not replies[0])
        return f"has {entry.member}, which `{there(*entry.parts)}` lacks" if missing else None

    def judge_order(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return judge(entry, replies, now, members)

    found = [(to, Invariant("order", members, in_order, judge))]
    if members.type == "list":  # where looking for each would take long
        return [*found, (family, Invariant("order", order, asks_size, judge_size, whole=True))]
    return [*found, (family, Invariant("order", order, in_members, judge_order))]


def _scored(family: Family, says: Scored, to: Family) -> list[tuple[Family, Invariant]]:
    name, field = _namer(family, to.key), says.field

    def asks(entry: Entry) -> Sequence[Command]:
        return (("HGET", name(entry), field),)

    def judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is None:
            return f"names `{name(entry)}`, which does not exist"
        if number(replies[0]) == float(entry.value):
            return None
        return f"has {entry.member} at {entry.value}, and its {field} is {replies[0]}"

    return [(family, Invariant("score", family.key, asks, judge, repair=says.repair))]


def number(text: Any) -> float:
    """A number that someone may have broken; nothing equals what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


_MAKERS: dict[type, Any] = {
    Mirrors: _mirrored,
    Refers: _referred,
    Belongs: _belonging,
    Orders: _ordered,
    Scored: _scored,
}
