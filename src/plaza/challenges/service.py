"""Challenges, who takes part in them, and the days they kept at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.challenges.model import (
    AlreadyJoined,
    AlreadyTracked,
    Challenge,
    ChallengesPage,
    Membership,
    NewChallenge,
    NewTracking,
    NotJoined,
    NotMember,
    Private,
    Tracked,
    clean,
    date_of,
    day_named,
    day_of,
)
from plaza.challenges.projection import Derived
from plaza.challenges.queries import (
    MEMBERS,
    challenge_for,
    challenge_of,
    member_of,
    note,
    require_ongoing,
    require_sight,
)
from plaza.challenges.tables import ARRIVAL, CHALLENGE, MEMBER, REMOVAL, TRACKING
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username

_ALL = newest_ids(CHALLENGE.c.id)
_PUBLIC = newest_ids(CHALLENGE.c.id, CHALLENGE.c.is_public)
_JOINED = select(MEMBER.c.challenge_id).where(MEMBER.c.username == bindparam("viewer"))
_PUBLIC_AND_OWN = newest_ids(
    CHALLENGE.c.id,
    or_(CHALLENGE.c.is_public, CHALLENGE.c.creator == bindparam("viewer"), CHALLENGE.c.id.in_(_JOINED)),
)
_BY_IDS = select(CHALLENGE, MEMBERS).where(CHALLENGE.c.id.in_(bindparam("ids", expanding=True)))


class Challenges:
    """What people set out to do."""

    def __init__(self, sql: Sql, derived: Derived, clock: Clock) -> None:
        self._sql = sql
        self._derived = derived
        self._clock = clock

    def _today(self) -> int:
        return day_of(self._clock.now_ms())

    async def create(self, actor: Actor, new: NewChallenge, operation: str) -> Challenge:
        """Start a challenge, without joining it. The same operation again gives the same challenge."""
        now = self._clock.now_ms()
        values = {
            "title": clean(new.title, "title"),
            "category": new.category,
            "is_public": new.is_public,
            "duration": new.duration,
            "creator": actor.name,
            "created_ms": now,
            "ends_day": day_of(now) + new.duration,
            "operation": operation,
        }
        statement = self._sql.insert(CHALLENGE).values(values).on_conflict_do_nothing(index_elements=["operation"])
        async with self._sql.begin() as tx:
            await lock_username(tx, self._derived.valkey, actor.name, actor.since_ms)
            id = (await tx.execute(statement.returning(CHALLENGE.c.id))).scalar()
            if id is None:
                id = (await tx.execute(select(CHALLENGE.c.id).where(CHALLENGE.c.operation == operation))).scalar_one()
            row = await challenge_of(tx, id)
        await self._derived.challenges([row.id])
        return as_challenge(row)

    async def read(self, actor: Actor | None, id: int) -> Challenge:
        return as_challenge(await challenge_for(self._sql, actor, id))

    async def page(self, actor: Actor | None, page: Page) -> ChallengesPage:
        """Challenges, the newest first: the public ones, and one's own. An admin sees all."""
        if actor is None:
            name, after = "challenges", ids_in_table(self._sql, "challenges", _PUBLIC)
        else:
            name = f"challenges for {actor.name}"
            if actor.is_admin:
                after = ids_in_table(self._sql, name, _ALL)
            else:
                after = ids_in_table(self._sql, name, _PUBLIC_AND_OWN, viewer=actor.name)
        paged = await page_by_position(name, page, after, self._read_many)
        return ChallengesPage(paged.items, paged.pagination)

    async def _read_many(self, ids: Sequence[str]) -> list[Challenge | None]:
        wanted = [int(id) for id in ids]
        found = {row.id: as_challenge(row) for row in await self._sql.fetch_all(_BY_IDS, ids=wanted)}
        return [found.get(id) for id in wanted]

    async def join(self, actor: Actor, id: int) -> Membership:
        """Take part. A private challenge is joined by its creator or an admin only."""
        async with self._sql.begin() as tx:
            await lock_username(tx, self._derived.valkey, actor.name, actor.since_ms)
            challenge = await challenge_of(tx, id)
            if not (challenge.is_public or actor.is_admin or actor.name == challenge.creator):
                raise Private("This challenge is private.")
            require_ongoing(challenge, self._today())
            values = {"challenge_id": id, "username": actor.name, "joined_day": self._today()}
            statement = self._sql.insert(MEMBER).values(values).on_conflict_do_nothing()
            if (await tx.execute(statement.returning(MEMBER.c.id))).scalar() is None:
                raise AlreadyJoined("You are a member already.")
        return Membership(id, actor.name, True)

    async def leave(self, actor: Actor, id: int) -> Membership:
        """Take part no longer. Days that were tracked stay tracked."""
        mine = (MEMBER.c.challenge_id == id, MEMBER.c.username == actor.name)
        async with self._sql.begin() as tx:
            challenge = await challenge_of(tx, id, actor)
            gone = (await tx.execute(delete(MEMBER).where(*mine).returning(MEMBER))).all()
            if not gone:
                require_sight(actor, challenge)
                raise NotJoined("You are no member of this challenge.")
            await note(tx, REMOVAL, "mmbr", gone)
        return Membership(id, actor.name, False)

    async def track(self, actor: Actor, id: int, new: NewTracking) -> Tracked:
        """Note a day of progress: today, or a day since joining."""
        today = self._today()
        day = today if new.date is None else day_named(new.date)
        if day > today:
            raise Invalid("must not be in the future", field="date")
        async with self._sql.begin() as tx:
            await lock_username(tx, self._derived.valkey, actor.name, actor.since_ms)
            await self._require_in_time(tx, actor, id, day)
            values = {"challenge_id": id, "username": actor.name, "day": day}
            statement = self._sql.insert(TRACKING).values(values).on_conflict_do_nothing()
            row = (await tx.execute(statement.returning(TRACKING))).one_or_none()
            if row is None:
                raise AlreadyTracked("This day is tracked already.", date=date_of(day))
            await note(tx, ARRIVAL, "tracking", [row])
        await self._derived.contributions([actor.name])
        return Tracked(row.id, id, actor.name, date_of(day))

    async def _require_in_time(self, tx: AsyncConnection, actor: Actor, id: int, day: int) -> None:
        challenge = await challenge_of(tx, id)
        member = await member_of(tx, id, actor.name, lock=True)
        if member is None:
            raise NotMember("Only members track their days.")
        if day < member.joined_day:
            raise Invalid("must not be before you joined", field="date")
        if day >= challenge.ends_day:
            if day == self._today():
                require_ongoing(challenge, day)
            raise Invalid("must be before the challenge ended", field="date")


def as_challenge(row: Any) -> Challenge:
    return Challenge(
        id=row.id,
        title=row.title,
        category=row.category,
        is_public=row.is_public,
        duration=row.duration,
        creator=row.creator,
        created_at=row.created_ms,
        finished_date=date_of(row.ends_day),
        members=row.members,
    )
