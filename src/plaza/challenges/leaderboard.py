"""Leaderboards: a challenge's members by what they have tracked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, func, select

from plaza.challenges.member_totals import from_row
from plaza.challenges.model import Leaderboard, LeaderboardMember, LeaderboardQuery, day_number, from_thousandths
from plaza.challenges.queries import read_visible_challenge
from plaza.challenges.tables import MEMBER
from plaza.core.auth import Actor
from plaza.core.blocks import names_hidden_from
from plaza.core.clock import Clock
from plaza.core.domain import BlockLists
from plaza.core.paging import Snapshots
from plaza.core.pictures import AvatarAddresses, NoAvatars
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey

_OF_CHALLENGE = MEMBER.c.challenge_id == bindparam("challenge")
# By the value of `by`. Members with none are left out, and so are streaks that ended before yesterday.
_ORDERS: Final = {"days": MEMBER.c.days, "amount": MEMBER.c.amount_thousandths, "streak": MEMBER.c.streak}
FIRST_MEMBERS: Final = {
    by: select(MEMBER.c.id)
    .where(_OF_CHALLENGE, column > 0, *([MEMBER.c.last_day >= bindparam("since")] if by == "streak" else []))
    .order_by(column.desc(), MEMBER.c.id)
    .limit(bindparam("count"))
    for by, column in _ORDERS.items()
}
_BY_IDS = select(MEMBER).where(MEMBER.c.id.in_(bindparam("ids", expanding=True)))
TOTALS = select(
    func.coalesce(func.sum(MEMBER.c.days), 0).label("days"),
    func.coalesce(func.sum(MEMBER.c.amount_thousandths), 0).label("amount"),
).where(_OF_CHALLENGE)

# Read beyond what is shown, because some may be hidden from the viewer.
SPARE_MEMBERS: Final = 10


class Leaderboards:
    """Reads leaderboards."""

    def __init__(
        self,
        sql: Sql,
        valkey: Valkey,
        clock: Clock,
        blocks: BlockLists | None = None,
        avatars: AvatarAddresses | None = None,
    ) -> None:
        self._sql = sql
        self._valkey = valkey
        self._clock = clock
        self._blocks = blocks
        self._avatars = avatars or NoAvatars()
        self._snapshots = Snapshots(valkey, clock)

    async def page(self, viewer: Actor | None, id: int, query: LeaderboardQuery) -> Leaderboard:
        """A page of the first 1,000 members, without users that a block hides. Four queries and two round trips."""
        challenge = await read_visible_challenge(self._sql, viewer, id)
        today = day_number(self._clock.now_ms())
        since = {"since": today - 1} if query.by == "streak" else {}

        async def ids(count: int) -> list[str]:
            rows = await self._sql.fetch_all(FIRST_MEMBERS[query.by], challenge=id, count=count, **since)
            return [str(row.id) for row in rows]

        async def load(ids: Sequence[str]) -> list[LeaderboardMember | None]:
            return await self._load(viewer, id, today, ids)

        paged = await self._snapshots.page(f"leaderboard of {id} by {query.by}", query, ids, load)
        (total,) = await self._sql.fetch_all(TOTALS, challenge=id)
        return Leaderboard(
            challenge_id=id,
            unit=challenge.unit or None,
            days=int(total.days),
            amount=from_thousandths(int(total.amount)),
            members=paged.items,
            pagination=paged.pagination,
        )

    async def first(self, viewer: Actor | None, id: int, count: int) -> list[LeaderboardMember]:
        """The members of a visible challenge with most days, without users that a block hides. Two queries."""
        rows = await self._sql.fetch_all(FIRST_MEMBERS["days"], challenge=id, count=count + SPARE_MEMBERS)
        today = day_number(self._clock.now_ms())
        found = await self._load(viewer, id, today, [str(row.id) for row in rows]) if rows else []
        return [member for member in found if member is not None][:count]

    async def _load(
        self, viewer: Actor | None, challenge: int, today: int, ids: Sequence[str]
    ) -> list[LeaderboardMember | None]:
        rows = {
            row.id: row
            for row in await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])
            if row.challenge_id == challenge
        }
        names = {row.username for row in rows.values()}
        hidden = await names_hidden_from(self._valkey, self._blocks, viewer, names)
        avatars = await self._avatars.addresses(names - hidden)
        shown = {id: _member(row, avatars.get(row.username, ""), today) for id, row in rows.items()}
        return [None if (row := rows.get(int(id))) is None or row.username in hidden else shown[row.id] for id in ids]


def _member(row: Any, avatar: str, today: int) -> LeaderboardMember:
    totals = from_row(row)
    return LeaderboardMember(
        username=row.username,
        avatar=avatar,
        days=totals.days,
        amount=from_thousandths(totals.amount_thousandths),
        current_streak=totals.current_streak(today),
        longest_streak=totals.longest_streak,
    )
