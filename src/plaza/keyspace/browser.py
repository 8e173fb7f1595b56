"""Browses live keys by key family, without reading the whole keyspace.

A page of keys comes from `SCAN` in bounded steps, also when a family is rare among millions of keys: the page then says
how many keys were scanned and where to continue. A key's content is shown in part, with the meanings from the
catalogue. Secrets are never shown: the content of closed families, tokens in names, and private profile fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from plaza.core.errors import Invalid, NotFound
from plaza.core.keyspace import Catalogue, HashField, Key, KeyAccess, Layout
from plaza.core.sequences import pairs
from plaza.core.valkey import Valkey
from plaza.keyspace.family_matching import KeyFamilies, KeyFamily

PAGE_KEYS: Final = 40
# The most keys scanned for one page. The first step is small, because a page of a large family gets all rows of a step.
# Steps then grow, so that a rare family is found; the largest takes Valkey at most a millisecond.
MAX_SCANNED_KEYS: Final = 50_000
FIRST_STEP_KEYS: Final = 50
MAX_STEP_KEYS: Final = 1_600
SHOWN_MEMBERS: Final = 60
SHOWN_CHARACTERS: Final = 400

# Parts of key names that grant access.
SECRET_PARTS: Final = frozenset({"token"})

_LENGTH_COMMANDS: Final = {
    "string": "STRLEN",
    "hash": "HLEN",
    "set": "SCARD",
    "zset": "ZCARD",
    "list": "LLEN",
    "stream": "XLEN",
}
_TIME_UNIT = re.compile(r"Unix (milliseconds|seconds|microseconds)")


class KeySummary(Struct):
    """A key in a list. `name` has its secret parts masked. `readable` says whether the content may be shown."""

    name: str
    readable: bool
    kind: str
    length: int
    memory: int
    expires_ms: int | None


class KeyPage(Struct):
    """A page of keys of one family, the number of keys scanned for it, and where the next page begins."""

    keys: list[KeySummary]
    scanned: int
    total: int
    next: str | None


class KeyRow(Struct):
    """A member or field of a key, its meaning, and its score or value."""

    name: str
    meaning: str
    value: str
    at_ms: int | None = None  # if the value is a time
    hidden: bool = False


class KeyView(Struct):
    """A key and the first part of its content."""

    summary: KeySummary
    rows: list[KeyRow]


class KeyBrowser:
    """Lists the keys of a family and shows the content of a key."""

    def __init__(self, valkey: Valkey, catalogues: Sequence[Catalogue]) -> None:
        self._valkey = valkey
        self.catalogues = catalogues
        self._families = KeyFamilies(catalogues, valkey.layout)
        self._documented = KeyFamilies(catalogues, Layout.PLAIN)

    @cached_property
    def _named(self) -> dict[str, KeyFamily]:
        return {name: self._families.for_key(key) for catalogue in self.catalogues for name, key in catalogue}

    @property
    def closed_patterns(self) -> frozenset[str]:
        """The patterns of families that hold secrets: neither their names nor their content may be shown."""
        return frozenset(family.key.pattern for family in self._families.all if not is_readable(family.key))

    def family(self, name: str) -> KeyFamily:
        """The family with this name in its catalogue, such as `post_likes`."""
        found = self._named.get(name)
        if found is None:
            raise NotFound("No such key family.")
        return found

    async def find_key(self, name: str) -> tuple[str, str] | None:
        """The name of the family of a key, and the key's own if it exists and may be shown, else an empty text.

        None if no family has such keys. On a cluster, the documented name (`user:mira`) finds the key as well as the
        stored one (`user:{mira}`). At most one round trip.
        """
        found = self._families.match(name) or self._documented.match(name)
        if found is None:
            return None
        key = found[0].key
        stored = key(*found[1])
        is_shown = is_readable(key) and await self._valkey.call("EXISTS", stored)
        return next(name for name, family in self._named.items() if family.key is key), stored if is_shown else ""

    async def keys_of(self, part: str, owner: str) -> list[tuple[str, str]]:
        """The existing keys of one owner, such as `username`: their family's name and their own. One round trip.

        Only families that name nothing else, and whose content may be shown.
        """
        named = [
            (name, family.key(owner))
            for name, family in self._named.items()
            if family.key.parts == (part,) and is_readable(family.key)
        ]
        own = [(name, key) for name, key in named if self._belongs_to(key, self._named[name])]
        found = await self._valkey.batch([("EXISTS", key) for _, key in own])
        return [pair for pair, exists in zip(own, found, strict=True) if exists]

    async def list_keys(self, name: str, cursor: str = "") -> KeyPage:
        """A page of a family's keys. Scans at most `MAX_SCANNED_KEYS` keys, in short steps."""
        family = self.family(name)
        nodes = self._valkey.primaries()
        total = sum([int(await node.call("DBSIZE")) for node in nodes])
        if not family.key.parts:
            exists = await self._valkey.call("EXISTS", family.key())
            return KeyPage(await self._summaries(family, [family.key()] if exists else []), exists, total, None)
        node, position = _parse_cursor(cursor, len(nodes))
        names: list[str] = []
        scanned, step = 0, FIRST_STEP_KEYS
        while node < len(nodes) and len(names) < PAGE_KEYS and scanned < MAX_SCANNED_KEYS:
            command = ("SCAN", position, "MATCH", glob(family.key, self._valkey.layout), "COUNT", step)
            position, found = await nodes[node].call(*command, "TYPE", family.key.type)
            names += [name for name in found if self._belongs_to(name, family)]
            scanned, step = scanned + step, min(2 * step, MAX_STEP_KEYS)
            if position == "0":
                node += 1
        next_cursor = None if node == len(nodes) else f"{node}-{position}"
        return KeyPage(await self._summaries(family, sorted(names)), min(scanned, total), total, next_cursor)

    def _belongs_to(self, name: str, family: KeyFamily) -> bool:
        found = self._families.match(name)
        return found is not None and found[0] is family

    async def get_key(self, name: str, key: str) -> KeyView:
        """A key and the first part of its content. Two round trips."""
        family = self.family(name)
        if not self._belongs_to(key, family) or not is_readable(family.key):
            raise NotFound("No such key, or its content may not be shown.")
        found = await self._summaries(family, [key])
        if not found:
            raise NotFound("No such key.")
        summary = found[0]
        if summary.kind != family.key.type:
            raise Invalid(f"This key is a {summary.kind}, but should be a {family.key.type}. Run `plaza audit`.")
        return KeyView(summary, _rows(family.key, await self._content(family.key.type, key)))

    async def _content(self, kind: str, key: str) -> list[tuple[str, str]]:
        """The first members or fields, each with its score or value."""
        most = SHOWN_MEMBERS
        if kind == "hash":
            found = await self._valkey.call("HSCAN", key, 0, "COUNT", most)
            return pairs(found[1])[:most]
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

    async def _summaries(self, family: KeyFamily, names: Sequence[str]) -> list[KeySummary]:
        if not names:
            return []
        length_command = _LENGTH_COMMANDS[family.key.type]
        commands = [
            command
            for name in names
            for command in (
                ("TYPE", name),
                ("PTTL", name),
                ("MEMORY", "USAGE", name, "SAMPLES", 5),
                (length_command, name),
            )
        ]
        replies: list[Any] = await self._valkey.batch(commands, return_errors=True)
        found = []
        for n, name in enumerate(names):
            kind, ttl, memory, length = replies[4 * n : 4 * n + 4]
            if kind == "none" or isinstance(kind, Exception):
                continue  # deleted since its name was read
            size = length if isinstance(length, int) else 0
            expires = ttl if isinstance(ttl, int) and ttl >= 0 else None
            found.append(
                KeySummary(
                    self._masked(name),
                    is_readable(family.key) and kind == family.key.type,
                    kind,
                    size,
                    memory or 0,
                    expires,
                )
            )
        return found

    def _masked(self, name: str) -> str:
        """The name with its secret parts shortened."""
        found = self._families.match(name)
        if found is None:
            return name
        family, ids = found
        if not SECRET_PARTS & set(family.key.parts):
            return name
        masked = [f"{id[:4]}…" if part in SECRET_PARTS else id for part, id in zip(family.key.parts, ids, strict=True)]
        return family.key(*masked)


def is_readable(key: Key) -> bool:
    """Whether a family's content may be shown to an admin."""
    return key.read is not KeyAccess.NONE and not SECRET_PARTS & set(key.parts)


def glob(key: Key, layout: Layout) -> str:
    """A glob that matches all keys of a family, and possibly keys of other families."""
    literal = key.name(layout, *["\0"] * len(key.parts))
    return re.sub(r"([\\*?\[\]])", r"\\\1", literal).replace("\0", "*")


def _parse_cursor(cursor: str, nodes: int) -> tuple[int, str]:
    """The index of the node and the SCAN cursor on it."""
    if not cursor:
        return 0, "0"
    found = re.fullmatch(r"(\d{1,4})-(\d{1,20})", cursor)
    if found is None or int(found[1]) >= nodes:
        raise Invalid("Invalid cursor. Request the first page again.", field="cursor")
    return int(found[1]), found[2]


def _rows(key: Key, content: Iterable[tuple[str, str]]) -> list[KeyRow]:
    fields = {field.name: field for field in key.fields}
    if fields:
        return [_field_row(name, value, fields.get(name)) for name, value in content]
    meaning = key.score if key.type == "zset" else key.contains
    return [KeyRow(shorten(name), "", shorten(value), at_ms=unix_ms(value, meaning)) for name, value in content]


def _field_row(name: str, value: str, field: HashField | None) -> KeyRow:
    """A field of a hash. The value of a private, secret or undeclared field is hidden."""
    if field is None or field.read in (KeyAccess.SELF, KeyAccess.NONE):
        meaning = "a custom field of the owner" if field is None else field.help
        return KeyRow(shorten(name), meaning, "", hidden=True)
    return KeyRow(name, field.help, shorten(value), at_ms=unix_ms(value, field.help))


def shorten(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def unix_ms(value: str, meaning: str) -> int | None:
    """The time in milliseconds if the meaning says that the value is a Unix time; else None."""
    unit = _TIME_UNIT.search(meaning)
    if unit is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    ms = {"milliseconds": number, "seconds": number * 1000, "microseconds": number / 1000}[unit[1]]
    return int(ms) if 0 < ms < 4_102_444_800_000 else None
