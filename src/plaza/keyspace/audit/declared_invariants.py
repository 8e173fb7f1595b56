"""Builds the invariants that catalogues declare in one line beside a key.

A line often makes an invariant of another key. That the size of `post:<post>:likes` equals `likesCount` is checked at
the post that has `likesCount`, because a scan never meets a set that is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant
from plaza.core.keyspace import CountField, Formula, Key, MirrorOf, Reference, RequiresKey, SameMembers, ScoreField
from plaza.keyspace.audit.basic_invariants import retired_invariant
from plaza.keyspace.family_matching import KeyFamilies, KeyFamily

SIZE = {"set": "SCARD", "zset": "ZCARD", "list": "LLEN", "hash": "HLEN", "string": "STRLEN", "stream": "XLEN"}
HAS = {"set": "SISMEMBER", "zset": "ZSCORE", "list": "LPOS", "hash": "HEXISTS"}

_PART = re.compile(r"<(\w+)>")
NameOf = Callable[[Entry], str]


def bind(families: KeyFamilies, rules: Sequence[Invariant]) -> None:
    """Attach to every family its declared invariants and `rules`, those that domains add."""
    patterns = {(family.domain, family.key.pattern): family for family in families.all}
    counters: dict[str, list[tuple[Key, CountField]]] = {}
    for family in families.all:
        for invariant in family.key.invariants:
            if isinstance(invariant, CountField):
                counters.setdefault(invariant.pattern, []).append((family.key, invariant))
            elif not isinstance(invariant, Formula):
                to = patterns[family.domain, invariant.pattern]
                for target, rule in _BUILDERS[type(invariant)](family, invariant, to):
                    _add(target, rule)
    for family in families.all:
        if family.key.pattern in counters:
            _add(family, _count_invariant(family, counters[family.key.pattern]))
        if family.key.retired:
            _add(family, retired_invariant(family.key))
    for rule in rules:
        _add(families.for_key(rule.key), rule)


def _add(family: KeyFamily, rule: Invariant) -> None:
    (family.key_invariants if rule.per_key else family.member_invariants).append(rule)


def _namer(family: KeyFamily, to: Key, field: str = "") -> NameOf:
    """A function that names the key an entry refers to: by the ids of its member, else by the ids of its own key."""
    members = family.element_shape.parts if family.element_shape else ()
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


def _count_invariant(to: KeyFamily, counts: Sequence[tuple[Key, CountField]]) -> Invariant:
    """Each counter of a hash equals the size of a key of the same owner."""

    def reads(entry: Entry) -> Sequence[Command]:
        return [(SIZE[key.type], key(*entry.parts)) for key, _ in counts]

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        for (key, counted), size in zip(counts, replies, strict=True):
            if entry.value.get(counted.field, "0") != str(size):
                return f"{counted.field} is {entry.value.get(counted.field)}, but `{key(*entry.parts)}` has {size}"
        return None

    own_keys = all(key.owner == to.key.owner for key, _ in counts)
    return Invariant("count", to.key, reads, check, counts[0][1].repair, per_key=True, own_keys=own_keys)


def _mirror_invariant(family: KeyFamily, declared: MirrorOf, to: KeyFamily) -> list[tuple[KeyFamily, Invariant]]:
    name, has = _namer(family, to.key), HAS[to.key.type]
    template, order = (
        _PART.sub("%s", to.key.element_regex),
        [family.key.parts.index(p) for p in _PART.findall(to.key.element_regex)],
    )

    def reads(entry: Entry) -> Sequence[Command]:
        return ((has, name(entry), template % tuple(entry.parts[i] for i in order)),)

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is None or (has != "ZSCORE" and not replies[0]):
            return f"has {entry.member}, but `{name(entry)}` does not have the other side"
        if declared.same_score and float(replies[0]) != entry.value:
            return f"has {entry.member} at {entry.value:.0f}, but `{name(entry)}` at {replies[0]:.0f}"
        return None

    return [(family, Invariant("mirror", family.key, reads, check, repair=declared.repair))]


def _reference_invariant(family: KeyFamily, declared: Reference, to: KeyFamily) -> list[tuple[KeyFamily, Invariant]]:
    if any(isinstance(other, ScoreField) and other.pattern == declared.pattern for other in family.key.invariants):
        return []  # the score invariant reads the other key anyway
    name = _namer(family, to.key, declared.field)

    def reads(entry: Entry) -> Sequence[Command]:
        return (("EXISTS", name(entry)),)

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] else f"refers to `{name(entry)}`, which does not exist"

    return [
        (family, Invariant("reference", family.key, reads, check, repair=declared.repair, per_key=bool(declared.field)))
    ]


def _orphan_invariant(family: KeyFamily, declared: RequiresKey, to: KeyFamily) -> list[tuple[KeyFamily, Invariant]]:
    parts = [family.key.parts.index(part) for part in to.key.parts]

    def name(entry: Entry) -> str:
        return to.key(*(entry.parts[i] for i in parts))

    def reads(entry: Entry) -> Sequence[Command]:
        return (("EXISTS", name(entry)),)

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return None if replies[0] else f"exists without `{name(entry)}`"

    own_keys = family.key.owner == to.key.owner
    rule = Invariant("orphan", family.key, reads, check, repair=declared.repair, per_key=True, own_keys=own_keys)
    return [(family, rule)]


def _order_invariants(family: KeyFamily, declared: SameMembers, to: KeyFamily) -> list[tuple[KeyFamily, Invariant]]:
    order, members = family.key, to.key

    def read_sizes(entry: Entry) -> Sequence[Command]:
        return ((SIZE[order.type], entry.name), (SIZE[members.type], members(*entry.parts)))

    def check_sizes(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        own, other = replies
        return None if own == other else f"has {own} members, but `{members(*entry.parts)}` has {other}"

    def read_order(entry: Entry) -> Sequence[Command]:
        return ((HAS[order.type], order(*entry.parts), entry.member),)

    def read_members(entry: Entry) -> Sequence[Command]:
        return ((HAS[members.type], members(*entry.parts), entry.member),)

    def check(entry: Entry, replies: Sequence[Any], now: int, other: Key = order) -> str | None:
        missing = replies[0] is None or (HAS[other.type] != "ZSCORE" and not replies[0])
        return f"has {entry.member}, which `{other(*entry.parts)}` lacks" if missing else None

    def check_members(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        return check(entry, replies, now, members)

    own_keys = order.owner == members.owner
    built = [(to, Invariant("order", members, read_order, check, own_keys=own_keys))]
    if members.type == "list":  # finding one member in a list is O(n), so only the sizes are compared
        sizes = Invariant("order", order, read_sizes, check_sizes, per_key=True, own_keys=own_keys)
        return [*built, (family, sizes)]
    return [*built, (family, Invariant("order", order, read_members, check_members, own_keys=own_keys))]


def _score_invariant(family: KeyFamily, declared: ScoreField, to: KeyFamily) -> list[tuple[KeyFamily, Invariant]]:
    name, field = _namer(family, to.key), declared.field

    def reads(entry: Entry) -> Sequence[Command]:
        return (("HGET", name(entry), field),)

    def check(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
        if replies[0] is None:
            return f"refers to `{name(entry)}`, which does not exist"
        if number(replies[0]) == float(entry.value):
            return None
        return f"has {entry.member} at {entry.value}, but its {field} is {replies[0]}"

    return [(family, Invariant("score", family.key, reads, check, repair=declared.repair))]


def number(text: Any) -> float:
    """The number in a text; NaN, which equals nothing, if another client wrote something else."""
    try:
        return float(text)
    except ValueError:
        return math.nan


_BUILDERS: dict[type, Any] = {
    MirrorOf: _mirror_invariant,
    Reference: _reference_invariant,
    RequiresKey: _orphan_invariant,
    SameMembers: _order_invariants,
    ScoreField: _score_invariant,
}
