"""Looking at live keys, family by family, without ever asking Valkey for all of them.

A page of keys is found by `SCAN` in bounded steps, also when a family is rare among millions of keys: it then says how
far it looked, and where to go on. What a key holds is shown in part, in the catalogue's words. What is secret is never
shown: the contents of closed families, the tokens in names, and what a profile keeps for its own person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from plaza.core.errors import Invalid, NotFound
from plaza.core.keyspace import Access, Catalogue, Field, Key, Layout
from plaza.core.valkey import Valkey
from plaza.keyspace.families import Families, Family

PAGE: Final = 40
# Keys that one page looks through at most. Few at a time to begin with, or a page of a large family would have as many
# rows as that; a family that is rare is looked for in longer steps, of a millisecond of Valkey at most.
LOOKED_AT: Final = 50_000
FIRST_STEP: Final = 50
LONGEST_STEP: Final = 1_600
SHOWN_MEMBERS: Final = 60
SHOWN_CHARACTERS: Final = 400

# Whoever has one of these is somebody.
SECRET_PARTS: Final = frozenset({"token"})

_LENGTHS: Final = {
    "string": "STRLEN",
    "hash": "HLEN",
    "set": "SCARD",
    "zset": "ZCARD",
    "list": "LLEN",
    "stream": "XLEN",
}
_MOMENT = re.compile(r"Unix (milliseconds|seconds|microseconds)")


class Glance(Struct):
    """A key in a list. `name` is as it may be shown; without `opens` its contents may not be."""

    name: str
    opens: bool
    kind: str
    length: int
    memory: int
    expires_ms: int | None


class Listing(Struct):
    """Some keys of a family, how many were looked through for them, and where to go on."""

    keys: list[Glance]
    looked: int
    total: int
    next: str | None


class Row(Struct):
    """Something that a key holds: a member or a field, what it means, and its value or score."""

    name: str
    meaning: str
    value: str
    at_ms: int | None = None  # if the value is a moment
    hidden: bool = False


class Look(Struct):
    """A key and some of what it holds."""

    glance: Glance
    rows: list[Row]


class Keyspace:
    """The catalogue and the keys that are there."""

    def __init__(self, valkey: Valkey, catalogues: Sequence[Catalogue]) -> None:
        self._valkey = valkey
        self.catalogues = catalogues
        self._families = Families(catalogues, valkey.layout)
        self._named = {name: self._families.of(key) for catalogue in catalogues for name, key in catalogue}

    @property
    def closed(self) -> frozenset[str]:
        """The patterns of families that hold secrets: neither their names nor what they hold are for a page."""
        return frozenset(family.key.pattern for family in self._families.all if not opens(family.key))

    def family(self, name: str) -> Family:
        found = self._named.get(name)
        if found is None:
            raise NotFound("There is no such family of keys.")
        return found

    async def keys(self, name: str, cursor: str = "") -> Listing:
        """A page of a family's keys. At most `LOOKED_AT` keys are looked through, in short steps."""
        family = self.family(name)
        nodes = self._valkey.primaries()
        total = sum([int(await node.call("DBSIZE")) for node in nodes])
        if not family.key.parts:
            there = await self._valkey.call("EXISTS", family.key())
            return Listing(await self._glances(family, [family.key()] if there else []), there, total, None)
        at, position = _read(cursor, len(nodes))
        names: list[str] = []
        looked, step = 0, FIRST_STEP
        while at < len(nodes) and len(names) < PAGE and looked < LOOKED_AT:
            command = ("SCAN", position, "MATCH", pattern(family.key, self._valkey.layout), "COUNT", step)
            position, found = await nodes[at].call(*command, "TYPE", family.key.type)
            names += [name for name in found if self._is(name, family)]
            looked, step = looked + step, min(2 * step, LONGEST_STEP)
            if position == "0":
                at += 1
        following = None if at == len(nodes) else f"{at}-{position}"
        return Listing(await self._glances(family, sorted(names)), min(looked, total), total, following)

    def _is(self, name: str, family: Family) -> bool:
        found = self._families.match(name)
        return found is not None and found[0] is family

    async def look(self, name: str, key: str) -> Look:
        """A key and the first of what it holds."""
        family = self.family(name)
        if not self._is(key, family) or not opens(family.key):
            raise NotFound("There is no such key to look at.")
        found = await self._glances(family, [key])
        if not found:
            raise NotFound("There is no such key.")
        glance = found[0]
        if glance.kind != family.key.type:
            raise Invalid(f"This is a {glance.kind}, and should be a {family.key.type}.")
        return Look(glance, _rows(family.key, await self._held(family.key.type, key)))

    async def _held(self, kind: str, key: str) -> list[tuple[str, str]]:
        most = SHOWN_MEMBERS
        if kind == "hash":
            found = await self._valkey.call("HSCAN", key, 0, "COUNT", most)
            return _pairs(found[1])[:most]
        if kind == "zset":
            found = await self._valkey.call("ZRANGE", key, 0, most - 1, "REV", "WITHSCORES")
            return [(member, f"{score:.17g}") for member, score in found]
        if kind == "set":
            return [(member, "") for member in (await self._valkey.call("SSCAN", key, 0, "COUNT", most))[1][:most]]
        if kind == "list":
            return [(str(n), value) for n, value in enumerate(await self._valkey.call("LRANGE", key, 0, most - 1))]
        if kind == "stream":
            found = await self._valkey.call("XREVRANGE", key, "+", "-", "COUNT", most // 3)
            return [(id, " ".join(map(str, fields))) for id, fields in found]
        return [("value", await self._valkey.call("GETRANGE", key, 0, 4 * SHOWN_CHARACTERS))]

    async def _glances(self, family: Family, names: Sequence[str]) -> list[Glance]:
        if not names:
            return []
        measure = _LENGTHS[family.key.type]
        asked = [
            command
            for name in names
            for command in (
                ("TYPE", name),
                ("PTTL", name),
                ("MEMORY", "USAGE", name, "SAMPLES", 5),
                (measure, name),
            )
        ]
        replies: list[Any] = await self._valkey.batch(asked, return_errors=True)
        found = []
        for n, name in enumerate(names):
            kind, ttl, memory, length = replies[4 * n : 4 * n + 4]
            if kind == "none" or isinstance(kind, Exception):
                continue  # it went in this moment
            size = length if isinstance(length, int) else 0
            expires = ttl if isinstance(ttl, int) and ttl >= 0 else None
            found.append(
                Glance(
                    self._shown(name), opens(family.key) and kind == family.key.type, kind, size, memory or 0, expires
                )
            )
        return found

    def _shown(self, name: str) -> str:
        """A name without what nobody must see of it."""
        found = self._families.match(name)
        if found is None:
            return name
        family, ids = found
        if not SECRET_PARTS & set(family.key.parts):
            return name
        masked = [f"{id[:4]}…" if part in SECRET_PARTS else id for part, id in zip(family.key.parts, ids, strict=True)]
        return family.key(*masked)


def opens(key: Key) -> bool:
    """Whether what a family holds may be shown to an admin."""
    return key.read is not Access.NOBODY and not SECRET_PARTS & set(key.parts)


def pattern(key: Key, layout: Layout) -> str:
    """The glob that finds a family's keys, and a few others perhaps."""
    literal = key.name(layout, *["\0"] * len(key.parts))
    return re.sub(r"([\\*?\[\]])", r"\\\1", literal).replace("\0", "*")


def _read(cursor: str, nodes: int) -> tuple[int, str]:
    if not cursor:
        return 0, "0"
    found = re.fullmatch(r"(\d{1,4})-(\d{1,20})", cursor)
    if found is None or int(found[1]) >= nodes:
        raise Invalid("This is no place in a list of keys.", field="cursor")
    return int(found[1]), found[2]


def _pairs(flat: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _rows(key: Key, held: Iterable[tuple[str, str]]) -> list[Row]:
    fields = {field.name: field for field in key.fields}
    if fields:
        return [_field(name, value, fields.get(name)) for name, value in held]
    meaning = key.score if key.type == "zset" else key.of
    return [Row(cut(name), "", cut(value), at_ms=moment(value, meaning)) for name, value in held]


def _field(name: str, value: str, field: Field | None) -> Row:
    """A field of a hash. One that nobody declared is its owner's own, as those are that only its owner may read."""
    if field is None or field.read in (Access.SELF, Access.NOBODY):
        meaning = "a field of its owner's own" if field is None else field.help
        return Row(cut(name), meaning, "", hidden=True)
    return Row(name, field.help, cut(value), at_ms=moment(value, field.help))


def cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def moment(value: str, meaning: str) -> int | None:
    """The moment that a value names, in milliseconds, if its meaning says that it names one."""
    unit = _MOMENT.search(meaning)
    if unit is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    ms = {"milliseconds": number, "seconds": number * 1000, "microseconds": number / 1000}[unit[1]]
    return int(ms) if 0 < ms < 4_102_444_800_000 else None
