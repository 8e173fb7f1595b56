"""How a person stands to challenges and their posts: what a page shows beside them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import select

from plaza.challenges.model import day_of
from plaza.challenges.record import member_of
from plaza.challenges.tables import MEMBER, REACTION, TRACKING
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.sql import Sql


class Standing(msgspec.Struct, frozen=True):
    """Whether someone takes part, since when, and on which days they kept at it; days are counted from 1970."""

    member: bool
    days: list[int]
    today: int

    @property
    def tracked_today(self) -> bool:
        return self.today in self.days


class Standings:
    """Answers for one person, from the record."""

    def __init__(self, sql: Sql, clock: Clock) -> None:
        self._sql = sql
        self._clock = clock

    async def of(self, actor: Actor, challenge: int) -> Standing:
        """How someone stands to a challenge."""
        mine = (TRACKING.c.challenge_id == challenge, TRACKING.c.username == actor.name)
        async with self._sql.read() as tx:
            member = await member_of(tx, challenge, actor.name)
            days = (await tx.execute(select(TRACKING.c.day).where(*mine).order_by(TRACKING.c.day))).scalars().all()
        return Standing(member is not None, list(days), day_of(self._clock.now_ms()))

    async def joined(self, actor: Actor, challenges: Sequence[int]) -> set[int]:
        """Which of some challenges someone takes part in."""
        statement = select(MEMBER.c.challenge_id).where(
            MEMBER.c.username == actor.name, MEMBER.c.challenge_id.in_(challenges)
        )
        async with self._sql.read() as tx:
            return set((await tx.execute(statement)).scalars().all())

    async def reacted(self, actor: Actor, posts: Sequence[int]) -> set[int]:
        """Which of some posts someone has reacted to."""
        statement = select(REACTION.c.post_id).where(REACTION.c.username == actor.name, REACTION.c.post_id.in_(posts))
        async with self._sql.read() as tx:
            return set((await tx.execute(statement)).scalars().all())
