"""Writes `user_contribution`, the number of days that each user has tracked, from SQL.

A writer reads the days again after its write, and repeats the write if they have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import func, select

from plaza.challenges.keys import USER_CONTRIBUTION
from plaza.challenges.model import CATEGORIES
from plaza.challenges.readable_rows import BATCH, ReadableRows
from plaza.challenges.tables import CHALLENGE, TRACKING
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.sql import Sql


class ContributionProjection:
    """The tracked days of users, by category."""

    def __init__(self, sql: Sql, functions: Functions, readable: ReadableRows) -> None:
        self._sql = sql
        self._functions = functions
        self._readable = readable

    async def update(self, names: Collection[str]) -> None:
        """Update `user_contribution` for these users.

        After the write, SQL is read again. If another transaction has changed the days meanwhile, they are written
        again, so of several concurrent writers the last one has read the last state.
        """
        for batch in chunks(names, BATCH):
            written = await self._read_days(batch)
            await self._write_days(written)
            while changed := await self._read_changed_days(written):
                await self._write_days(changed)
                written = changed

    async def _read_changed_days(self, written: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """The days of users who have other days now than were written."""
        now = await self._read_days(list(written))
        return {name: days for name, days in now.items() if days != written[name]}

    async def _read_days(self, names: Sequence[str]) -> dict[str, list[int]]:
        days = {name: [0] * CATEGORIES for name in names}
        if not names:
            return days
        statement = (
            select(TRACKING.c.username, CHALLENGE.c.category, func.count().label("days"))
            .join(CHALLENGE, TRACKING.c.challenge_id == CHALLENGE.c.id)
            .where(TRACKING.c.username.in_(names), self._readable.condition("tracking", TRACKING))
            .group_by(TRACKING.c.username, CHALLENGE.c.category)
        )
        async with self._sql.read() as tx:
            for row in await tx.execute(statement):
                days[row.username][row.category - 1] = row.days
        return days

    async def _write_days(self, days: Mapping[str, list[int]]) -> None:
        args = [part for name, counts in days.items() for part in (name, ",".join(map(str, counts)))]
        await self._functions.run("challenges_write_contributions", [USER_CONTRIBUTION()], *args)
