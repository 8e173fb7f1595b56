"""A user's participation: which challenges they joined, which days they tracked, which posts they reacted to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import BindParameter, bindparam, select

from plaza.challenges.member_totals import from_row
from plaza.challenges.model import ChallengeReminder, Totals, day_number, from_thousandths
from plaza.challenges.tables import MEMBER, REACTION, TRACKING
from plaza.challenges.tracking import reminder_of
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
_MEMBER = select(MEMBER).where(MEMBER.c.challenge_id == bindparam("challenge"), MEMBER.c.username == _VIEWER)
_JOINED = select(MEMBER.c.challenge_id).where(MEMBER.c.username == _VIEWER, MEMBER.c.challenge_id.in_(_IDS))
_REACTED = select(REACTION.c.post_id).where(REACTION.c.username == _VIEWER, REACTION.c.post_id.in_(_IDS))


class Participation(msgspec.Struct, frozen=True):
    """Whether a user is a member of a challenge, and what they tracked there; `days` are day numbers."""

    member: bool
    days: list[int]
    today: int
    totals: Totals = Totals()
    reminder: ChallengeReminder | None = None
    joined_day: int = 0

    @property
    def current_streak(self) -> int:
        return self.totals.current_streak(self.today)

    @property
    def amount(self) -> float:
        return from_thousandths(self.totals.amount_thousandths)

    @property
    def tracked_today(self) -> bool:
        return self.today in self.days


class Participations:
    """Reads a user's participation from SQL."""

    def __init__(self, sql: Sql, clock: Clock) -> None:
        self._sql = sql
        self._clock = clock

    async def get(self, actor: Actor, challenge: int) -> Participation:
        """A user's participation in a challenge. Two queries."""
        days = await self._sql.fetch_all(_DAYS, viewer=actor.name, challenge=challenge)
        member = await self._sql.fetch_all(_MEMBER, viewer=actor.name, challenge=challenge)
        tracked, today = [day for (day,) in days], day_number(self._clock.now_ms())
        if not member:
            return Participation(False, tracked, today)
        (row,) = member
        return Participation(True, tracked, today, from_row(row), reminder_of(row), row.joined_day)

    async def get_joined(self, actor: Actor, challenges: Sequence[int]) -> set[int]:
        """Those of these challenges that a user has joined. One query."""
        return {id for (id,) in await self._sql.fetch_all(_JOINED, viewer=actor.name, ids=challenges)}

    async def get_reacted(self, actor: Actor, posts: Sequence[int]) -> set[int]:
        """Those of these posts that a user has reacted to. One query."""
        return {id for (id,) in await self._sql.fetch_all(_REACTED, viewer=actor.name, ids=posts)}
