"""Makes a part of what Valkey holds anew: from the tables, and nothing else.

Everything that the tables give is written, and everything that Valkey has is looked at too: what the tables do not give
goes. Both in batches, beside people who are posting.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from sqlalchemy import Select, func, select

from plaza.challenges.keys import (
    CATALOGUE,
    CLGS_PREFERENCE,
    LIKED_POSTS,
    ON_CLG_INFO,
    POST_CLG_PAIR,
    RECENT_POSTS,
    USER_CONTRIBUTION,
)
from plaza.challenges.model import CATEGORIES, is_id
from plaza.challenges.projection import BATCH, Derived, batches
from plaza.challenges.tables import CHALLENGE, POST, REACTION, TRACKING
from plaza.core.sql import Sql
from plaza.core.tokens import is_username

# What is being done, how much of it just was, and how much of it there is in all.
Progress = Callable[[str, int, int], None]


class Rebuilding:
    """Starts over, part by part. Parts have the names of the tables that they follow from."""

    def __init__(self, derived: Derived) -> None:
        self._derived = derived
        self._sql = derived.sql
        self._valkey = derived.valkey

    async def part(self, name: str, today: int, progress: Progress) -> None:
        if name == "clg":
            await self._challenges(today, progress)
        elif name == "post":
            await self._posts(today, progress)
        elif name == "reaction":
            async for names, total in self._names(REACTION):
                await self._derived.people(names)
                progress("people with reactions", len(names), total)
            await self._derived.people(await self._people_in_valkey())
        elif name == "tracking":
            async for names, total in self._names(TRACKING):
                await self._derived.contributions(names, "exact")
                progress("people with days", len(names), total)
            held = await self._swept(USER_CONTRIBUTION(), is_username)
            await self._derived.contributions(held, "exact")

    async def _challenges(self, today: int, progress: Progress) -> None:
        going = select(CHALLENGE.c.id).where(CHALLENGE.c.ends_day > today)
        async for rows, total in paged(self._sql, going, CHALLENGE.c.id):
            await self._derived.challenges([row.id for row in rows])
            progress("challenges", len(rows), total)
        await self._derived.challenges([int(id) for id in await self._swept(ON_CLG_INFO(), is_id)])

    async def _posts(self, today: int, progress: Progress) -> None:
        recent = select(POST.c.id).where(POST.c.day > today - self._derived.max_post_age)
        async for rows, total in paged(self._sql, recent, POST.c.id):
            await self._derived.posts([row.id for row in rows], today=today)
            progress("posts", len(rows), total)
        there = await self._swept(POST_CLG_PAIR(), is_id)
        for category in range(1, CATEGORIES + 1):
            there |= await self._swept(RECENT_POSTS(category), is_id, "ZSCAN", "ZREM")
        await self._derived.posts([int(id) for id in there], today=today)

    async def _names(self, table: Any) -> AsyncIterator[tuple[list[str], int]]:
        name, last = table.c.username, ""
        async with self._sql.read() as tx:
            total = (await tx.execute(select(func.count(name.distinct())))).scalar_one()
        while True:
            names = select(name).distinct().where(name > last).order_by(name)
            async with self._sql.read() as tx:
                found = list((await tx.execute(names.limit(BATCH))).scalars().all())
            if not found:
                return
            yield found, total
            last = found[-1]

    async def _swept(
        self, key: str, may_be: Callable[[str], bool], scan: str = "HSCAN", remove: str = "HDEL"
    ) -> set[str]:
        """What a key holds, after what the tables can never have given it is gone: somebody else wrote that."""
        there = {name async for page in self._scan(self._valkey, scan, key) for name in page[::2]}
        foreign = {name for name in there if not may_be(name)}
        for names in batches(foreign):
            await self._valkey.call(remove, key, *names)
        return there - foreign

    async def _people_in_valkey(self) -> list[str]:
        found = set()
        for key in (LIKED_POSTS, CLGS_PREFERENCE):
            for node in self._valkey.primaries():
                async for names in self._scan(node, "SCAN", match=f"*{key.pattern.partition('>')[2]}"):
                    matches = [CATALOGUE.match(name) for name in names]
                    found |= {match.parts[0] for match in matches if match is not None and match.key is key}
        return sorted(found)

    async def _scan(self, node: Any, command: str, *key: str, match: str = "*") -> AsyncIterator[list[str]]:
        cursor = "0"
        while True:
            cursor, page = await node.call(command, *key, cursor, "MATCH", match, "COUNT", 1_000)
            yield page
            if str(cursor) == "0":
                return


async def paged(sql: Sql, statement: Select[Any], id: Any) -> AsyncIterator[tuple[list[Any], int]]:
    """What a statement gives, in batches by id, with how many there were at the beginning."""
    async with sql.read() as tx:
        total = (await tx.execute(select(func.count()).select_from(statement.subquery()))).scalar_one()
    last = 0
    while True:
        async with sql.read() as tx:
            rows = list((await tx.execute(statement.where(id > last).order_by(id).limit(BATCH))).all())
        if not rows:
            return
        yield rows, total
        last = rows[-1].id
