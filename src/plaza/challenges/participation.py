"""How a person stands to challenges and their posts: what a page shows beside them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import BindParameter, bindparam, select

from plaza.challenges.model import day_of
from plaza.challenges.tables import MEMBER, REACTION, TRACKING
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.sql import Sql

_VIEWER: BindParameter[str] = bindparam("viewer")
_IDS: BindParameter[int] = bindparam("ids", expanding=True)
_DAYS = (
    select(TRACKING.c.day)
    .where(TRACKING.c.challenge_id == bindparam("challenge"), TRACKING.c.username == _VIEWER)
    .order_by(TRACKING.c.day)
)
_JOINED = select(MEMBER.c.challenge_id).where(MEMBER.c.username == _VIEWER, MEMBER.c.challenge_id.in_(_IDS))
_REACTED = select(REACTION.c.post_id).where(REACTION.c.username == _VIEWER, REACTION.c.post_id.in_(_IDS))


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
        days = await self._sql.fetch_all(_DAYS, viewer=actor.name, challenge=challenge)
        joined = await self.joined(actor, [challenge])
        return Standing(bool(joined), [day for (day,) in days], day_of(self._clock.now_ms()))

    async def joined(self, actor: Actor, challenges: Sequence[int]) -> set[int]:
        """Which of some challenges someone takes part in."""
        return {id for (id,) in await self._sql.fetch_all(_JOINED, viewer=actor.name, ids=challenges)}

    async def reacted(self, actor: Actor, posts: Sequence[int]) -> set[int]:
        """Which of some posts someone has reacted to."""
        return {id for (id,) in await self._sql.fetch_all(_REACTED, viewer=actor.name, ids=posts)}
