"""Writes what Valkey holds of challenges, computed from the SQL tables.

All writes of derived keys are here, in `contribution_projection` and in `reaction_projection`. They run after each
change of SQL, in the daily job and in a rebuild. A write states a value (a post is in the pool or not, a user has n
reactions in a challenge), not a change. So it can be repeated.

Two concurrent writers could write in another order than they read. So challenges, which can be edited, are read again
after they are written. The columns of posts never change. The two other modules say how they prevent it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from plaza.challenges.contribution_projection import ContributionProjection
from plaza.challenges.keys import (
    CLG_NEIGHBOURS,
    ON_CLG_INFO,
    POST_CLG_PAIR,
    pool_keys,
)
from plaza.challenges.member_totals import MemberTotals
from plaza.challenges.model import CATEGORIES, day_number, format_clg_info, in_pool
from plaza.challenges.reaction_projection import ReactionProjection
from plaza.challenges.readable_rows import BATCH, ReadableRows
from plaza.challenges.tables import CHALLENGE, POST
from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.sql import Sql


class ChallengeProjections:
    """Updates the derived keys of challenges and posts; `contributions` and `reactions` update those of users,
    and `totals` the columns of members."""

    def __init__(
        self,
        sql: Sql,
        functions: Functions,
        clock: Clock,
        max_post_age: int,
        ceilings: Mapping[str, int] | None = None,
    ) -> None:
        self.sql = sql
        self.functions = functions
        self.valkey = functions.valkey
        self.clock = clock
        self.max_post_age = max_post_age
        readable = ReadableRows(ceilings)
        self.contributions = ContributionProjection(sql, functions, readable)
        self.reactions = ReactionProjection(sql, functions, readable)
        self.totals = MemberTotals(sql, readable)

    def up_to(self, ceilings: Mapping[str, int]) -> ChallengeProjections:
        """Return projections for a run of the daily job, which reads fewer rows: `ReadableRows`."""
        return ChallengeProjections(self.sql, self.functions, self.clock, self.max_post_age, ceilings)

    def today(self) -> int:
        return day_number(self.clock.now_ms())

    async def update_challenges(self, ids: Collection[int]) -> None:
        """Update `on_clg_info` for these challenges, and delete the neighbours of ended ones."""
        for batch in chunks(ids, BATCH):
            written, ongoing = None, await self._read_ongoing(batch)
            while ongoing != written:
                await self._write_hash(ON_CLG_INFO(), batch, ongoing)
                written, ongoing = ongoing, await self._read_ongoing(batch)
            if ended := [id for id in batch if id not in ongoing]:
                await self.valkey.batch([("UNLINK", CLG_NEIGHBOURS(id)) for id in ended])

    async def _read_ongoing(self, ids: Sequence[int]) -> dict[int, str]:
        async with self.sql.read() as tx:
            rows = (await tx.execute(select(CHALLENGE).where(CHALLENGE.c.id.in_(ids)))).all()
        return {row.id: format_clg_info(row) for row in rows if row.ends_day > self.today()}

    async def update_posts(self, ids: Collection[int], *, today: int | None = None) -> None:
        """Update the pool and `post_clg_pair` for these posts. `today` may be earlier than the last day written."""
        day = self.today() if today is None else today
        for batch in chunks(ids, BATCH):
            statement = select(POST, CHALLENGE).join(CHALLENGE, POST.c.challenge_id == CHALLENGE.c.id)
            statement = statement.with_only_columns(
                POST.c.id,
                POST.c.challenge_id,
                POST.c.day,
                POST.c.is_break,
                CHALLENGE.c.category,
                CHALLENGE.c.is_public,
                CHALLENGE.c.ends_day,
            )
            async with self.sql.read() as tx:
                rows = (await tx.execute(statement.where(POST.c.id.in_(batch)))).all()
            in_pools = {row.id: row for row in rows if in_pool(row, day, self.max_post_age)}
            await self._write_pools(batch, in_pools, day, may_go_back=today is not None)
            await self._write_hash(POST_CLG_PAIR(), batch, {id: str(row.challenge_id) for id, row in in_pools.items()})

    async def clear_old_slots(self, today: int) -> None:
        """Clear the pools' slots of days outside the window that ends today. `today` may be earlier than before."""
        await self._write_pools([], {}, today, may_go_back=True)

    async def _write_pools(
        self, ids: Sequence[int], in_pools: dict[int, Any], today: int, *, may_go_back: bool
    ) -> None:
        for category in range(1, CATEGORIES + 1):
            days = {id: row.day for id, row in in_pools.items() if row.category == category}
            # Posts of other categories are removed too, in case another service added them.
            args = [part for id in ids for part in (id, days.get(id, ""))]
            await self.functions.run(
                "challenges_write_pool", pool_keys(category), today, self.max_post_age, int(may_go_back), *args
            )

    async def _write_hash(self, key: str, ids: Sequence[int], values: dict[int, str]) -> None:
        commands: list[list[str | int]] = []
        if values:
            commands.append(["HSET", key, *(part for pair in values.items() for part in pair)])
        if removed := [id for id in ids if id not in values]:
            commands.append(["HDEL", key, *removed])
        if commands:
            await self.valkey.batch(commands)
