"""Rebuilds parts of what Valkey holds from the SQL tables alone.

A rebuild writes everything derived from the tables, then checks everything in Valkey and removes the rest. It works in
batches and can run while users post.
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
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.readable_rows import BATCH
from plaza.challenges.tables import CHALLENGE, MEMBER, POST, REACTION, TRACKING
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.core.tokens import is_username
from plaza.core.valkey import scan_pages

# Called with a step's name, how many items were just done, and their total number.
Progress = Callable[[str, int, int], None]


class Rebuild:
    """Rebuilds one part at a time. Parts have the names of the tables they are derived from."""

    def __init__(self, projections: ChallengeProjections) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._valkey = projections.valkey

    async def rebuild(self, name: str, today: int, progress: Progress) -> None:
        if name == "clg":
            await self._challenges(today, progress)
        elif name == "post":
            await self._posts(today, progress)
        elif name == "reaction":
            async for names, total in self._usernames(REACTION):
                await self._projections.reactions.rewrite_users(names)
                progress("users with reactions", len(names), total)
            await self._projections.reactions.rewrite_users(await self._users_in_valkey())
        elif name == "tracking":
            async for names, total in self._usernames(TRACKING):
                await self._projections.contributions.update(names)
                await self._projections.totals.update(names)
                progress("users with tracked days", len(names), total)
            stored = await self._valid_names(USER_CONTRIBUTION(), is_username)
            await self._projections.contributions.update(stored)
            async for names, _ in self._usernames(MEMBER):
                await self._projections.totals.update(names)

    async def _challenges(self, today: int, progress: Progress) -> None:
        ongoing = select(CHALLENGE.c.id).where(CHALLENGE.c.ends_day > today)
        async for rows, total in fetch_in_batches(self._sql, ongoing, CHALLENGE.c.id):
            await self._projections.update_challenges([row.id for row in rows])
            progress("challenges", len(rows), total)
        await self._projections.update_challenges([int(id) for id in await self._valid_names(ON_CLG_INFO(), is_id)])

    async def _posts(self, today: int, progress: Progress) -> None:
        recent = select(POST.c.id).where(POST.c.day > today - self._projections.max_post_age)
        async for rows, total in fetch_in_batches(self._sql, recent, POST.c.id):
            await self._projections.update_posts([row.id for row in rows], today=today)
            progress("posts", len(rows), total)
        stored = await self._valid_names(POST_CLG_PAIR(), is_id)
        for category in range(1, CATEGORIES + 1):
            stored |= await self._valid_names(RECENT_POSTS(category), is_id, "ZSCAN", "ZREM")
        await self._projections.update_posts([int(id) for id in stored], today=today)

    async def _usernames(self, table: Any) -> AsyncIterator[tuple[list[str], int]]:
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

    async def _valid_names(
        self, key: str, is_valid: Callable[[str], bool], scan: str = "HSCAN", remove: str = "HDEL"
    ) -> set[str]:
        """The fields or members of a key; invalid ones, written by mistake, are removed."""
        stored = {name async for page in scan_pages(self._valkey, scan, key) for name in page[::2]}
        invalid = {name for name in stored if not is_valid(name)}
        for names in chunks(invalid, BATCH):
            await self._valkey.call(remove, key, *names)
        return stored - invalid

    async def _users_in_valkey(self) -> list[str]:
        found = set()
        for key in (LIKED_POSTS, CLGS_PREFERENCE):
            for node in self._valkey.primaries():
                async for names in scan_pages(node, "SCAN", match=f"*{key.pattern.partition('>')[2]}"):
                    matches = [CATALOGUE.match(name) for name in names]
                    found |= {match.parts[0] for match in matches if match is not None and match.key is key}
        return sorted(found)


async def fetch_in_batches(sql: Sql, statement: Select[Any], id: Any) -> AsyncIterator[tuple[list[Any], int]]:
    """Yield a statement's rows in batches by id, each with their total number at the start."""
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
