"""Names by which users and tags are suggested, and corrected if a letter is wrong.

A name is folded. Its owner is a user's key or a tag. Trigrams find names that resemble each other; the distance between
two names decides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    Row,
    Select,
    Table,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    union_all,
    update,
)

from plaza.core.async_engine import AsyncConnection
from plaza.core.search_source import SearchDocument
from plaza.core.sql import Sql
from plaza.core.text_folding import fold
from plaza.search.tables import INDEXED_PREFIXES, SEARCH_NAME, SEARCH_TRIGRAM, name_prefix

TAGS: Final = "tags"
MAX_NAME_CHARACTERS: Final = 100
# The names of a user: the username, a display name of 200 characters, and its words. Another service can write more.
MAX_NAMES: Final = 102

# Names of at most so many characters are corrected by one letter, longer ones by two.
SHORT_NAME: Final = 4
# Names with the most trigrams in common, of which the nearest is chosen.
MAX_SIMILAR: Final = 50
# Names that are read of one trigram: a tenth of all names can have the same one, which says little about any of them.
# All names with a rarer one are read, and those are the similar ones.
MAX_PER_TRIGRAM: Final = 1_000

_BY_WEIGHT = (
    select(SEARCH_NAME.c.name, SEARCH_NAME.c.key, SEARCH_NAME.c.weight)
    .where(SEARCH_NAME.c.kind == bindparam("kind"))
    .order_by(SEARCH_NAME.c.weight.desc(), SEARCH_NAME.c.name)
    .limit(bindparam("count"))
)
_BY_SHORT_PREFIX = {n: _BY_WEIGHT.where(name_prefix(n) == bindparam("prefix")) for n in INDEXED_PREFIXES}
_BY_LONG_PREFIX = _BY_WEIGHT.where(SEARCH_NAME.c.name >= bindparam("prefix"), SEARCH_NAME.c.name < bindparam("end"))
_OWNERS = select(SEARCH_NAME.c.name, SEARCH_NAME.c.key, SEARCH_NAME.c.weight).where(
    SEARCH_NAME.c.kind == bindparam("kind"), SEARCH_NAME.c.name.in_(bindparam("names", expanding=True))
)
_OF_OWNERS = select(SEARCH_NAME.c.name, SEARCH_NAME.c.key).where(
    SEARCH_NAME.c.kind == bindparam("kind"), SEARCH_NAME.c.key.in_(bindparam("keys", expanding=True))
)
_ANY_OF_KIND = select(SEARCH_NAME.c.key).where(SEARCH_NAME.c.kind == bindparam("kind")).limit(1)

_HAS_TRIGRAMS = exists().where(SEARCH_TRIGRAM.c.kind == SEARCH_NAME.c.kind, SEARCH_TRIGRAM.c.name == SEARCH_NAME.c.name)
_WITHOUT_TRIGRAMS = _OF_OWNERS.where(~_HAS_TRIGRAMS)
_SET_WEIGHT = (
    update(SEARCH_NAME)
    .where(SEARCH_NAME.c.kind == bindparam("of_kind"), SEARCH_NAME.c.key == bindparam("of_key"))
    .values(weight=bindparam("new_weight"))
)

# The characters that may follow two letters in a username, so that these are found by their trigrams too.
_FOLLOWING: Final = " -._0123456789abcdefghijklmnopqrstuvwxyz"
_CONTAINING = (
    select(SEARCH_TRIGRAM.c.name)
    .where(SEARCH_TRIGRAM.c.kind == bindparam("kind"))
    .where(SEARCH_TRIGRAM.c.trigram.in_(bindparam("trigrams", expanding=True)))
    .where(SEARCH_TRIGRAM.c.name.like(bindparam("pattern"), escape="\\"))
    .limit(MAX_PER_TRIGRAM)
    # PostgreSQL would read them again for each name if it has not counted names yet.
    .cte("containing")
    .prefix_with("MATERIALIZED", dialect="postgresql")
)
# Each owner once: some have several names with the same letters. The key is an expression: otherwise SQLite reads all
# names in the order of their owners, to group them, instead of those that were found.
_OWNER = (SEARCH_NAME.c.key + literal_column("''")).label("key")
_OWNERS_CONTAINING = (
    select(_OWNER)
    .where(SEARCH_NAME.c.kind == bindparam("kind"), SEARCH_NAME.c.name.in_(select(_CONTAINING.c.name)))
    .group_by(_OWNER)
    .order_by(func.max(SEARCH_NAME.c.weight).desc(), _OWNER)
    .limit(bindparam("count"))
)


@cache
def _by_trigrams(count: int) -> Select[tuple[str]]:
    """Return a statement for the names of a length that have most of so many trigrams: `t0`, `t1`, …"""
    of_each = [
        select(SEARCH_TRIGRAM.c.name)
        .where(SEARCH_TRIGRAM.c.kind == bindparam("kind"), SEARCH_TRIGRAM.c.trigram == bindparam(f"t{i}"))
        .limit(MAX_PER_TRIGRAM)
        .subquery()
        for i in range(count)
    ]
    found = union_all(*(select(names.c.name) for names in of_each)).subquery()
    length = func.length(found.c.name)
    can_match = length.between(bindparam("shortest"), bindparam("longest"))
    most_in_common = (func.count().desc(), func.abs(length - bindparam("letters")), found.c.name)
    return select(found.c.name).where(can_match).group_by(found.c.name).order_by(*most_in_common).limit(MAX_SIMILAR)


class Name(Struct, frozen=True):
    """A name and its owner."""

    name: str
    key: str
    weight: float


class NameIndex:
    """The names of users and tags."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def by_prefix(self, kind: str, prefix: str, count: int) -> list[Name]:
        """Return names that begin with a prefix, the heaviest first. One statement."""
        start = fold(prefix)[:MAX_NAME_CHARACTERS]
        if len(start) in _BY_SHORT_PREFIX:
            rows = await self._sql.fetch_all(_BY_SHORT_PREFIX[len(start)], kind=kind, prefix=start, count=count)
        else:
            end = start + chr(0x10FFFF)
            rows = await self._sql.fetch_all(_BY_LONG_PREFIX, kind=kind, prefix=start, end=end, count=count)
        return [Name(row.name, row.key, row.weight) for row in rows]

    async def owners_containing(self, kind: str, text: str, count: int) -> list[str]:
        """Return owners of names that contain a text of at least two characters, the heaviest first. One statement."""
        part = fold(text)[:MAX_NAME_CHARACTERS]
        trigrams = [part[:3]] if len(part) > 2 else [part + character for character in _FOLLOWING]
        pattern = "%" + re.sub(r"([\\%_])", r"\\\1", part) + "%"
        values = {"kind": kind, "trigrams": trigrams, "pattern": pattern, "count": count}
        return [row.key for row in await self._sql.fetch_all(_OWNERS_CONTAINING, **values)]

    async def similar(self, kind: str, word: str) -> list[Name]:
        """Return names that differ from a word by one or two letters, the nearest first. Two statements.

        Of equally near ones, usernames and tags themselves come before words of display names.
        """
        wanted = fold(word)[:MAX_NAME_CHARACTERS]
        limit = max_distance(wanted)
        trigrams = {f"t{i}": trigram for i, trigram in enumerate(sorted(trigrams_of(wanted)))}
        lengths = {"letters": len(wanted), "shortest": len(wanted) - limit, "longest": len(wanted) + limit}
        rows = await self._sql.fetch_all(_by_trigrams(len(trigrams)), kind=kind, **trigrams, **lengths)
        distances = {row.name: distance(wanted, row.name, limit) for row in rows}
        near = [name for name, differing in distances.items() if 0 < differing <= limit]
        if not near:
            return []
        rows = await self._sql.fetch_all(_OWNERS, kind=kind, names=near)
        owners = [Name(row.name, row.key, row.weight) for row in rows]
        return sorted(
            owners, key=lambda each: (distances[each.name], each.name != fold(each.key), -each.weight, each.name)
        )

    async def misleading(self, kind: str, documents: Mapping[str, SearchDocument | None]) -> list[str]:
        """Return the keys that have other names than their documents. One statement if a document has names."""
        wanted = {key: set(_names(document)) for key, document in documents.items() if document is not None}
        if not any(wanted.values()):
            return []
        stored: dict[str, set[str]] = {key: set() for key in wanted}
        for row in await self._sql.fetch_all(_OF_OWNERS, kind=kind, keys=list(wanted)):
            stored[row.key].add(row.name)
        return [key for key in wanted if wanted[key] != stored[key]]

    async def update_owners(
        self, tx: AsyncConnection, kind: str, documents: Mapping[str, SearchDocument | None]
    ) -> None:
        """Replace the names of documents of a kind."""
        names = {key: _names(document) for key, document in documents.items()}
        if not any(names.values()) and None not in documents.values():
            return  # a kind without names, such as posts
        owned = (SEARCH_NAME.c.kind == kind, SEARCH_NAME.c.key.in_(list(names)))
        gone = (await tx.execute(delete(SEARCH_NAME).where(*owned).returning(SEARCH_NAME.c.name))).scalars().all()
        rows = [
            {"kind": kind, "name": name, "key": key, "weight": document.finite_weight}
            for key, document in documents.items()
            if document is not None
            for name in names[key]
        ]
        if rows:
            await tx.execute(insert(SEARCH_NAME), rows)
        await self._update_trigrams(tx, kind, {*gone, *(name for each in names.values() for name in each)})

    async def reweigh(self, tx: AsyncConnection, kind: str, weights: Mapping[str, float]) -> None:
        """Change the weight of the names of owners. One statement if their kind has no names, else up to three."""
        if not await self._sql.fetch_all(_ANY_OF_KIND, kind=kind):
            return
        found = await self._sql.fetch_all(_OF_OWNERS, kind=kind, keys=list(weights))
        if rows := [{"of_kind": kind, "of_key": key, "new_weight": weights[key]} for key in {row.key for row in found}]:
            await tx.execute(_SET_WEIGHT, rows)

    async def count_tags(self, tx: AsyncConnection, changes: Mapping[str, int]) -> None:
        """Change the number of documents of tags. A tag of no document is removed."""
        if not changes:
            return
        rows = [
            {"kind": TAGS, "name": fold(tag)[:MAX_NAME_CHARACTERS], "key": tag, "weight": float(change)}
            for tag, change in sorted(changes.items())
        ]
        statement = self._sql.insert(SEARCH_NAME)
        added = {"weight": SEARCH_NAME.c.weight + statement.excluded.weight}
        await tx.execute(statement.on_conflict_do_update(index_elements=["kind", "name", "key"], set_=added), rows)
        mine = (SEARCH_NAME.c.kind == TAGS, SEARCH_NAME.c.key.in_([row["key"] for row in rows]))
        await tx.execute(delete(SEARCH_NAME).where(*mine, SEARCH_NAME.c.weight <= 0))
        await self._update_trigrams(tx, TAGS, {str(row["name"]) for row in rows})

    async def without_trigrams(self, kind: str, keys: Collection[str]) -> list[Row[Any]]:
        """Return names of owners, with `name` and `key`, that have lost their trigrams. One statement."""
        return list(await self._sql.fetch_all(_WITHOUT_TRIGRAMS, kind=kind, keys=list(keys)))

    async def lost_tags(self, tags: Collection[str]) -> set[str]:
        """Return which tags are not suggested, or not corrected. Two statements if there are any."""
        if not tags:
            return set()
        known = {row.key for row in await self._sql.fetch_all(_OF_OWNERS, kind=TAGS, keys=list(tags))}
        return {*tags} - known | {row.key for row in await self.without_trigrams(TAGS, tags)}

    async def restore(self, tx: AsyncConnection, kind: str, keys: Collection[str], tags: Mapping[str, int]) -> None:
        """Write the lost trigrams of owners' names, and lost tags with the numbers of their documents."""
        await tx.execute(delete(SEARCH_NAME).where(SEARCH_NAME.c.kind == TAGS, SEARCH_NAME.c.key.in_(list(tags))))
        await self.count_tags(tx, tags)
        names = (await tx.execute(_WITHOUT_TRIGRAMS, {"kind": kind, "keys": list(keys)})).scalars()
        await self._update_trigrams(tx, kind, set(names))

    async def _update_trigrams(self, tx: AsyncConnection, kind: str, names: set[str]) -> None:
        """Give names in use their trigrams, and remove those of the others."""
        if not names:
            return
        used = await _present(tx, SEARCH_NAME, kind, names)
        known = await _present(tx, SEARCH_TRIGRAM, kind, names)
        if unused := known - used:
            stale = (SEARCH_TRIGRAM.c.kind == kind, SEARCH_TRIGRAM.c.name.in_(unused))
            await tx.execute(delete(SEARCH_TRIGRAM).where(*stale))
        rows = [
            {"kind": kind, "trigram": trigram, "name": name}
            for name in sorted(used - known)
            for trigram in sorted(trigrams_of(name))
        ]
        if rows:
            await tx.execute(insert(SEARCH_TRIGRAM), rows)


async def _present(tx: AsyncConnection, table: Table, kind: str, names: set[str]) -> set[str]:
    """Return which names a table has."""
    found = select(table.c.name).where(table.c.kind == kind, table.c.name.in_(names)).distinct()
    return set((await tx.execute(found)).scalars())


def _names(document: SearchDocument | None) -> list[str]:
    if document is None:
        return []
    return sorted({fold(name)[:MAX_NAME_CHARACTERS] for name in document.names[:MAX_NAMES] if fold(name)})


def trigrams_of(name: str) -> set[str]:
    """Return the trigrams of a name. Spaces mark its ends, so that the first letters count more."""
    padded = f"  {name} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


def max_distance(name: str) -> int:
    """Return how many letters of a name may be wrong."""
    return 1 if len(name) <= SHORT_NAME else 2


def distance(a: str, b: str, limit: int) -> int:
    """Return how many letters differ: added, missing, replaced, or two swapped. `limit + 1` if more than `limit`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        current = [i]
        for j, other in enumerate(b, 1):
            best = min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, before[j - 2] + 1)
            current.append(best)
        if min(current) > limit:
            return limit + 1
        before, previous = previous, current
    return previous[-1]
