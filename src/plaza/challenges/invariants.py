"""Compares what Valkey holds of challenges with the SQL tables, both ways, for the audit.

Four parts, each a mapping from an id to what Valkey should hold of it: a challenge's line, a post's place in the
pool, a person's days, a person's reactions. Ids come page by page from the tables, and then from Valkey, so that what
is missing shows as well as what is too much. SQL is written first and Valkey right after it, so a difference counts
only if it is still there when both were read several times; and what the daily job has yet to take in is its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import and_, func, select, true

from plaza.challenges import keys as k
from plaza.challenges.daily_job import Roll
from plaza.challenges.model import CATEGORIES, clg_info, is_id
from plaza.challenges.projection import BATCH, Derived
from plaza.challenges.table_state import Place
from plaza.challenges.tables import BY_NAME, CHALLENGE, POST, REACTION, REMOVAL, TRACKING
from plaza.core.invariants import Violation
from plaza.core.valkey import ReplyError

# How often a difference must be seen, and how long between: longer than a busy process takes from SQL to Valkey.
LOOKS = 6
PAUSE_SECONDS = 0.5

Held = Mapping[str, Any]


class Part(Protocol):
    """One thing that follows from the tables."""

    word: str
    family: str

    def pages(self) -> AsyncIterator[list[str]]:
        """The ids that there are, in SQL or in Valkey."""

    async def compare(self, ids: Sequence[str]) -> tuple[Held, Held]:
        """What should be held of these, and what is."""

    async def waiting(self, ids: Sequence[str], place: Place) -> set[str]:
        """Those of which the daily job has something to take in."""

    async def repair(self, id: str) -> None: ...


class _Source:
    """What all parts read from."""

    def __init__(self, derived: Derived) -> None:
        self.derived = derived
        self.sql = derived.sql
        self.valkey = derived.valkey

    async def rows(self, statement: Any) -> list[Any]:
        async with self.sql.read() as tx:
            return list((await tx.execute(statement)).all())

    async def ids(self, column: Any, where: Any, first: Any) -> AsyncIterator[list[str]]:
        """The values of a column in order, page by page."""
        last = first
        while True:
            page = select(column).distinct().where(where, column > last).order_by(column).limit(BATCH)
            found = [row[0] for row in await self.rows(page)]
            if not found:
                return
            yield [str(one) for one in found]
            last = found[-1]

    async def scan(self, command: str, key: str, node: Any = None, match: str = "*") -> AsyncIterator[list[str]]:
        cursor, args = "0", (key,) if key else ()
        while True:
            cursor, found = await (node or self.valkey).call(command, *args, cursor, "MATCH", match, "COUNT", BATCH)
            yield found
            if str(cursor) == "0":
                return


class Lines(_Source):
    word, family = "challenge", k.ON_CLG_INFO.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        async for ids in self.ids(CHALLENGE.c.id, CHALLENGE.c.ends_day > self.derived.today(), 0):
            yield ids
        async for flat in self.scan("HSCAN", k.ON_CLG_INFO()):
            yield _numbers(flat[::2])

    async def compare(self, ids: Sequence[str]) -> tuple[Held, Held]:
        held = await self.valkey.call("HMGET", k.ON_CLG_INFO(), *ids)
        there = select(CHALLENGE).where(CHALLENGE.c.id.in_(map(int, ids)), CHALLENGE.c.ends_day > self.derived.today())
        ought = {str(row.id): clg_info(row) for row in await self.rows(there)}
        return ought, _there(ids, held)

    async def waiting(self, ids: Sequence[str], place: Place) -> set[str]:
        new = select(CHALLENGE.c.id).where(CHALLENGE.c.id > place.at("clg"), CHALLENGE.c.id.in_(map(int, ids)))
        return {str(row.id) for row in await self.rows(new)}

    async def repair(self, id: str) -> None:
        await self.derived.challenges([int(id)])


class Pool(_Source):
    word, family = "post", k.POST_CLG_PAIR.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        recent = POST.c.day > self.derived.today() - self.derived.max_post_age
        async for ids in self.ids(POST.c.id, recent, 0):
            yield ids
        async for flat in self.scan("HSCAN", k.POST_CLG_PAIR()):
            yield _numbers(flat[::2])
        for category in range(1, CATEGORIES + 1):
            async for flat in self.scan("ZSCAN", k.RECENT_POSTS(category)):
                yield _numbers(flat[::2])

    async def compare(self, ids: Sequence[str]) -> tuple[Held, Held]:
        pools = [k.RECENT_POSTS(category) for category in range(1, CATEGORIES + 1)]
        pairs, *scores = await self.valkey.batch(
            [("HMGET", k.POST_CLG_PAIR(), *ids), *(("ZMSCORE", pool, *ids) for pool in pools)]
        )
        held = {
            id: (pairs[i], [found[i] for found in scores])
            for i, id in enumerate(ids)
            if pairs[i] is not None or any(found[i] is not None for found in scores)
        }
        return await self._ought(ids), held

    async def _ought(self, ids: Sequence[str]) -> Held:
        today, age = self.derived.today(), self.derived.max_post_age
        inside = and_(
            POST.c.day > today - age,
            POST.c.day <= today,
            POST.c.is_break.is_(False),
            CHALLENGE.c.is_public.is_(True),
            CHALLENGE.c.ends_day > today,
        )
        rows = await self.rows(
            select(POST.c.id, POST.c.challenge_id, POST.c.day, CHALLENGE.c.category)
            .join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            .where(POST.c.id.in_(map(int, ids)), inside)
        )
        return {
            str(row.id): (
                str(row.challenge_id),
                [float(row.day % age) if row.category == n else None for n in range(1, CATEGORIES + 1)],
            )
            for row in rows
        }

    async def waiting(self, ids: Sequence[str], place: Place) -> set[str]:
        new = select(POST.c.id).where(POST.c.id > place.at("post"), POST.c.id.in_(map(int, ids)))
        gone = select(REMOVAL.c.row_id).where(REMOVAL.c.table_name == "post", REMOVAL.c.row_id.in_(map(int, ids)))
        return {str(row[0]) for row in [*await self.rows(new), *await self.rows(gone)]}

    async def repair(self, id: str) -> None:
        await self.derived.posts([int(id)])


class Days(_Source):
    word, family = "tracking", k.USER_CONTRIBUTION.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        async for names in self.ids(TRACKING.c.username, true(), ""):
            yield names
        async for flat in self.scan("HSCAN", k.USER_CONTRIBUTION()):
            yield flat[::2]

    async def compare(self, ids: Sequence[str]) -> tuple[Held, Held]:
        held = await self.valkey.call("HMGET", k.USER_CONTRIBUTION(), *ids)
        rows = await self.rows(
            select(TRACKING.c.username, CHALLENGE.c.category, func.count().label("days"))
            .join(CHALLENGE, TRACKING.c.challenge_id == CHALLENGE.c.id)
            .where(TRACKING.c.username.in_(ids))
            .group_by(TRACKING.c.username, CHALLENGE.c.category)
        )
        days: dict[str, list[int]] = {}
        for row in rows:
            days.setdefault(row.username, [0] * CATEGORIES)[row.category - 1] = row.days
        return {name: ",".join(map(str, five)) for name, five in days.items()}, _there(ids, held)

    async def waiting(self, ids: Sequence[str], place: Place) -> set[str]:
        return await _people_waiting(self, TRACKING, "tracking", ids, place)

    async def repair(self, id: str) -> None:
        await self.derived.contributions([id], "exact")


class Reactions(_Source):
    word, family = "reactions", k.LIKED_POSTS.pattern

    async def pages(self) -> AsyncIterator[list[str]]:
        async for names in self.ids(REACTION.c.username, true(), ""):
            yield names
        for key in (k.LIKED_POSTS, k.CLGS_PREFERENCE):
            for node in self.valkey.primaries():
                async for found in self.scan("SCAN", "", node, f"*{key.pattern.partition('>')[2]}"):
                    matches = [k.CATALOGUE.match(name) for name in found]
                    yield [match.parts[0] for match in matches if match is not None and match.key is key]

    async def compare(self, ids: Sequence[str]) -> tuple[Held, Held]:
        asked = [command for name in ids for command in _asks_of(name)]
        replies = await self.valkey.batch(asked)
        liked, counts = await self.derived.read_reactions(ids)
        held = {
            name: (set(replies[2 * i]), {id: float(n) for id, n in replies[2 * i + 1]})
            for i, name in enumerate(ids)
            if replies[2 * i] or replies[2 * i + 1]
        }
        ought = {
            name: ({str(id) for id in liked[name]}, {str(id): float(n) for id, n in counts[name].items()})
            for name in ids
            if liked[name] or counts[name]
        }
        return ought, held

    async def waiting(self, ids: Sequence[str], place: Place) -> set[str]:
        return await _people_waiting(self, REACTION, "reaction", ids, place)

    async def repair(self, id: str) -> None:
        await self.derived.people([id])


class Inspection:
    """Everything that Valkey holds of challenges, against the tables."""

    def __init__(self, derived: Derived, roll: Roll) -> None:
        self._derived = derived
        self._roll = roll
        self._parts: dict[str, Part] = {
            part.word: part for part in (Lines(derived), Pool(derived), Days(derived), Reactions(derived))
        }

    async def inspect(self) -> AsyncIterator[Violation]:
        """What differs from the tables and stays so. On a day that has not been rolled yet, nothing is judged."""
        place = await Place.read(self._derived.valkey)
        if place.day != self._derived.today():
            return
        async for fault in self._job(place):
            yield fault
        for part in self._parts.values():
            try:
                async for ids in part.pages():
                    for fault in await self._differences(part, ids, place):
                        yield fault
            except ReplyError:
                continue  # a key of another type, which is a finding of its own

    async def repair(self, fault: Violation) -> None:
        word, _, id = fault.repair.partition(" ")
        if word == "roll":
            await self._roll.run()
        else:
            await self._parts[word].repair(id)

    async def _differences(self, part: Part, ids: Sequence[str], place: Place) -> list[Violation]:
        wrong = list(ids)
        for look in range(LOOKS):
            if not wrong:
                return []
            if look:
                await asyncio.sleep(PAUSE_SECONDS)
                wrong = sorted(set(wrong) - await part.waiting(wrong, place))
            ought, held = await part.compare(wrong) if wrong else ({}, {})
            wrong = [id for id in wrong if ought.get(id) != held.get(id)]
        if self._derived.today() != place.day:
            return []  # midnight has passed meanwhile
        return [
            Violation(
                part.family,
                "record",
                part.family,
                id,
                f"SQL gives {ought.get(id)} for {id}, and it has {held.get(id)}",
                f"{part.word} {id}",
            )
            for id in wrong
        ]

    async def _job(self, place: Place) -> AsyncIterator[Violation]:
        """What the last roll left: its parameters, and how many rows it counted."""
        age, day = self._derived.max_post_age, place.day
        if place.params != {
            "max_post_age": str(age),
            "distinct_category": str(CATEGORIES),
            "day_index": str(day % age),
        }:
            yield Violation(
                k.RS_PARAM.pattern, "record", k.RS_PARAM(), "", f"has {dict(place.params)} on day {day}", "roll"
            )
        for name in BY_NAME:
            for look in range(LOOKS):
                if look:
                    await asyncio.sleep(PAUSE_SECONDS)
                place = await Place.read(self._derived.valkey)
                ought = await self._rows_counted(name, place.counted(name))
                if place.counts.get(name) == str(ought):
                    break
            else:
                says = f"{name} is {place.counts.get(name)}, and there were {ought} rows"
                yield Violation(k.DB_LEN.pattern, "record", k.DB_LEN(), name, says, "roll")

    async def _rows_counted(self, name: str, up_to: int) -> int:
        """How many rows the last roll must have seen: those that are there, and those that Plaza has removed since."""
        table = BY_NAME[name]
        there = select(func.count()).select_from(table).where(table.c.id <= up_to).scalar_subquery()
        removed = select(func.count()).select_from(REMOVAL)
        removed = removed.where(REMOVAL.c.table_name == name, REMOVAL.c.row_id <= up_to)
        (row,) = await _Source(self._derived).rows(select(there, removed.scalar_subquery()))
        return int(row[0]) + int(row[1])


async def _people_waiting(source: _Source, table: Any, name: str, ids: Sequence[str], place: Place) -> set[str]:
    new = select(table.c.username).where(table.c.id > place.at(name), table.c.username.in_(ids))
    gone = select(REMOVAL.c.username).where(REMOVAL.c.table_name == name, REMOVAL.c.username.in_(ids))
    return {row.username for row in [*await source.rows(new), *await source.rows(gone)]}


def _asks_of(name: str) -> list[Sequence[Any]]:
    return [("SMEMBERS", k.LIKED_POSTS(name)), ("ZRANGE", k.CLGS_PREFERENCE(name), 0, -1, "WITHSCORES")]


def _there(ids: Sequence[str], values: Sequence[Any]) -> Held:
    return {id: value for id, value in zip(ids, values, strict=True) if value is not None}


def _numbers(ids: Sequence[str]) -> list[str]:
    """What can be ids; anything else is for the shape of the key to say."""
    return [id for id in ids if is_id(id)]
