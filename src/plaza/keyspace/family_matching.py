"""Maps a key name to its key family: the declared key it belongs to, and the ids in the name.

The audit matches millions of names against more than a hundred patterns. Patterns are therefore grouped by their
literal prefix up to the first colon, and each group is compiled to one regular expression. Patterns that begin with an
id (`<event>#Event#…`) form one more group, which is tried last. Each family keeps the shapes of its own catalogue,
because a `<tag>` may look different in another domain.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from plaza.core.invariants import Command, Entry, Invariant, Shape
from plaza.core.keyspace import Catalogue, Key, Layout


class KeyFamily(Struct, eq=False):
    """A declared key and everything the audit checks about it."""

    domain: str
    key: Key
    shapes: Mapping[str, str]
    deletion_markers: Mapping[str, Sequence[Key]]  # per part: the keys that list ids which are being deleted
    element_shape: Shape | None = None
    value_shape: Shape | None = None
    fields: dict[str, Shape] = field(default_factory=dict)
    member_invariants: list[Invariant] = field(default_factory=list)
    key_invariants: list[Invariant] = field(default_factory=list)

    def __post_init__(self) -> None:
        key = self.key
        self.element_shape = Shape(key.element_regex, self.shapes) if key.element_regex else None
        self.value_shape = Shape(key.value_regex, self.shapes) if key.value_regex else None
        self.fields = {f.name: Shape(f.value_regex, self.shapes) for f in key.fields if f.value_regex}

    @property
    def is_object(self) -> bool:
        """Whether the key is a hash with declared fields. It is then checked as one object."""
        return bool(self.key.fields)

    def ids(self, entry: Entry) -> dict[str, str]:
        """The ids in an entry by part name. `other` is the member's id if key and member have the same part."""
        found = dict(zip(self.key.parts, entry.parts, strict=True))
        for part, id in zip(self.element_shape.parts if self.element_shape else (), entry.ids, strict=False):
            if id is not None:  # another form of the member has no such id
                found["other" if part in found else part] = id
        if self.is_object and isinstance(entry.value, dict):
            for name, shape in self.fields.items():
                read = shape.read(entry.value.get(name, "")) if len(shape.parts) == 1 else None
                if read and read[0] is not None and shape.parts[0] not in found:
                    found[shape.parts[0]] = read[0]
        return found

    def deletion_checks(self, entry: Entry) -> list[Command]:
        """Commands that return a value if something the entry refers to is being deleted right now."""
        if not self.deletion_markers or self.key.marks_deletion_of:
            return []
        ids = self.ids(entry)
        if "other" in ids and self.element_shape:
            pairs = [*ids.items(), (next(p for p in self.element_shape.parts if p in self.key.parts), ids["other"])]
        else:
            pairs = list(ids.items())
        return [_deletion_check(key, id) for part, id in pairs for key in self.deletion_markers.get(part, ())]


def _deletion_check(key: Key, id: str) -> Command:
    if key.parts:
        return ("EXISTS", key(id))
    return ("SISMEMBER" if key.type == "set" else "ZSCORE", key(), id)


class KeyFamilies:
    """All key families of several catalogues. They are made when one is first asked for: many processes need none."""

    def __init__(self, catalogues: Iterable[Catalogue], layout: Layout) -> None:
        self._catalogues = tuple(catalogues)
        self._layout = layout

    @cached_property
    def all(self) -> list[KeyFamily]:
        families = []
        for catalogue in self._catalogues:
            deletion_markers: dict[str, list[Key]] = {}
            for _, key in catalogue:
                if key.marks_deletion_of:
                    deletion_markers.setdefault(key.marks_deletion_of, []).append(key)
            families += [KeyFamily(catalogue.domain, key, catalogue.shapes, deletion_markers) for _, key in catalogue]
        return families

    @cached_property
    def _by_key(self) -> dict[int, KeyFamily]:
        return {id(family.key): family for family in self.all}

    @cached_property
    def _exact(self) -> dict[str, KeyFamily]:
        return {family.key.pattern: family for family in self.all if not family.key.parts}

    @cached_property
    def _groups(self) -> dict[str, PrefixGroup]:
        groups: dict[str, list[KeyFamily]] = defaultdict(list, {"": []})
        for family in self.all:
            if family.key.parts:
                groups[_prefix(family.key)].append(family)
        return {prefix: PrefixGroup(families, self._layout) for prefix, families in groups.items()}

    def for_key(self, key: Key) -> KeyFamily:
        """The family of a declared key."""
        return self._by_key[id(key)]

    def match(self, name: str) -> tuple[KeyFamily, tuple[str, ...]] | None:
        """The family of a name and the ids in it; None if no catalogue declares the name."""
        found = self._exact.get(name)
        if found is not None:
            return found, ()
        group = self._groups.get(name[: name.find(":") + 1])
        return (group.match(name) if group else None) or self._groups[""].match(name)


class PrefixGroup:
    """Families with the same literal prefix, compiled to one regular expression."""

    def __init__(self, families: Sequence[KeyFamily], layout: Layout) -> None:
        self._families, self._layout = families, layout
        self._by_group: dict[int, tuple[KeyFamily, int]] = {}
        group = 1
        for family in families:
            self._by_group[group] = (family, group + len(family.key.parts))
            group += 1 + len(family.key.parts)

    @cached_property
    def _match(self) -> Callable[[str], re.Match[str] | None]:
        """Compiled when it is first needed: most processes match few of the groups, or none."""
        alternatives = [f"({family.key.regex(self._layout, family.shapes)})" for family in self._families]
        return re.compile("|".join(alternatives) or r"(?!)", re.DOTALL).fullmatch

    def match(self, name: str) -> tuple[KeyFamily, tuple[str, ...]] | None:
        """The family of a name in this group, and the ids in it."""
        found = self._match(name)
        if found is None:
            return None
        first = found.lastindex  # the last closed group is the outer one of the alternative that matched
        assert first is not None
        family, last = self._by_group[first]
        parts: tuple[Any, ...] = found.groups()[first:last]
        return family, parts


def _prefix(key: Key) -> str:
    literal = key.pattern[: key.pattern.index("<")]
    return literal[: literal.find(":") + 1]
