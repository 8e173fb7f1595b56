"""Which family a name belongs to, quickly, and what is known of that family.

A million names are matched against more than a hundred patterns. So patterns are sorted by what names of theirs begin
with, up to the first colon, and each heap is one regular expression; what begins with an id (`<event>#Event#…`) is one
heap more, tried last. Each family keeps its own catalogue's shapes: what a `<tag>` looks like differs between domains.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plaza.core.invariants import Command, Entry, Invariant, Shape
from plaza.core.keyspace import Catalogue, Key, Layout


@dataclass(slots=True, eq=False)
class Family:
    """A declared key, with everything that is to be checked of it."""

    domain: str
    key: Key
    shapes: Mapping[str, str]
    leaving: Mapping[str, Sequence[Key]]  # by part: where those of its ids are noted that are being removed
    holds: Shape | None = None
    value: Shape | None = None
    fields: dict[str, Shape] = field(default_factory=dict)
    each: list[Invariant] = field(default_factory=list)  # of every member
    whole: list[Invariant] = field(default_factory=list)

    def __post_init__(self) -> None:
        key = self.key
        self.holds = Shape(key.holds, self.shapes) if key.holds else None
        self.value = Shape(key.value, self.shapes) if key.value else None
        self.fields = {f.name: Shape(f.shape, self.shapes) for f in key.fields if f.shape}

    @property
    def is_object(self) -> bool:
        """A hash with fields of fixed meaning, which is judged as a whole."""
        return bool(self.key.fields)

    def ids(self, entry: Entry) -> dict[str, str]:
        """The ids that an entry speaks of, by their parts; `other` is the member's, where it is the key's part too."""
        found = dict(zip(self.key.parts, entry.parts, strict=True))
        for part, id in zip(self.holds.parts if self.holds else (), entry.ids, strict=False):
            found["other" if part in found else part] = id
        if self.is_object and isinstance(entry.value, dict):
            for name, shape in self.fields.items():
                read = shape.read(entry.value.get(name, "")) if len(shape.parts) == 1 else None
                if read and shape.parts[0] not in found:
                    found[shape.parts[0]] = read[0]
        return found

    def excuses(self, entry: Entry) -> list[Command]:
        """What to ask to know whether something of this is being removed just now."""
        if not self.leaving or self.key.leaving:
            return []
        ids = self.ids(entry)
        if "other" in ids and self.holds:
            pairs = [*ids.items(), (next(p for p in self.holds.parts if p in self.key.parts), ids["other"])]
        else:
            pairs = list(ids.items())
        return [_noted(key, id) for part, id in pairs for key in self.leaving.get(part, ())]


def _noted(key: Key, id: str) -> Command:
    if key.parts:
        return ("EXISTS", key(id))
    return ("SISMEMBER" if key.type == "set" else "ZSCORE", key(), id)


class Families:
    """All families of several catalogues."""

    def __init__(self, catalogues: Iterable[Catalogue], layout: Layout) -> None:
        self.all: list[Family] = []
        self.by_key: dict[int, Family] = {}
        for catalogue in catalogues:
            leaving: dict[str, list[Key]] = {}
            for _, key in catalogue:
                if key.leaving:
                    leaving.setdefault(key.leaving, []).append(key)
            for _, key in catalogue:
                family = Family(catalogue.domain, key, catalogue.shapes, leaving)
                self.all.append(family)
                self.by_key[id(key)] = family
        self._exact = {f.key.pattern: f for f in self.all if not f.key.parts}
        heaps: dict[str, list[Family]] = defaultdict(list)
        for family in self.all:
            if family.key.parts:
                heaps[_head(family.key)].append(family)
        self._heaps = {head: Heap(some, layout) for head, some in heaps.items()}
        self._rest = self._heaps.pop("", Heap([], layout))

    def of(self, key: Key) -> Family:
        return self.by_key[id(key)]

    def match(self, name: str) -> tuple[Family, tuple[str, ...]] | None:
        """The family of a name and the ids in it, or None for a key that nobody declared."""
        found = self._exact.get(name)
        if found is not None:
            return found, ()
        heap = self._heaps.get(name[: name.find(":") + 1])
        return (heap.match(name) if heap else None) or self._rest.match(name)


class Heap:
    """Families whose names begin alike."""

    def __init__(self, families: Sequence[Family], layout: Layout) -> None:
        self._of: dict[int, tuple[Family, int]] = {}
        alternatives, group = [], 1
        for family in families:
            alternatives.append(f"({family.key.regex(layout, family.shapes)})")
            self._of[group] = (family, group + len(family.key.parts))
            group += 1 + len(family.key.parts)
        self._match = re.compile("|".join(alternatives) or r"(?!)", re.DOTALL).fullmatch

    def match(self, name: str) -> tuple[Family, tuple[str, ...]] | None:
        found = self._match(name)
        if found is None:
            return None
        first = found.lastindex  # the group that closed last is the whole alternative
        assert first is not None
        family, last = self._of[first]
        parts: tuple[Any, ...] = found.groups()[first:last]
        return family, parts


def _head(key: Key) -> str:
    literal = key.pattern[: key.pattern.index("<")]
    return literal[: literal.find(":") + 1]
