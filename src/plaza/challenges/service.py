"""Challenges and their members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from sqlalchemy import bindparam, delete, or_, select, update

from plaza.challenges.edits import keep_text
from plaza.challenges.events import (
    STREAM,
    ChallengeCreated,
    ChallengeEdited,
    ChallengeInvitationEnded,
    ChallengeJoined,
    ChallengeLeft,
)
from plaza.challenges.member_totals import recount
from plaza.challenges.model import (
    AlreadyJoined,
    Challenge,
    ChallengeEdit,
    ChallengeMembership,
    ChallengesPage,
    NewChallenge,
    NotJoined,
    PrivateChallenge,
    UnitInUse,
    clean_text,
    day_number,
    iso_date,
)
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import (
    MEMBERS,
    log_changed_challenge,
    log_rows,
    read_challenge,
    read_visible_challenge,
    require_ongoing,
    require_visible,
)
from plaza.challenges.tables import CHALLENGE, DELETE_LOG, INVITATION, MEMBER, TRACKING
from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Forbidden, Invalid, NotFound
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.sql_idempotency import insert_once
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username

_EXISTS = CHALLENGE.c.deleted_ms.is_(None)
_ALL = newest_ids(CHALLENGE.c.id, _EXISTS)
_PUBLIC = newest_ids(CHALLENGE.c.id, CHALLENGE.c.is_public, _EXISTS)
_JOINED = select(MEMBER.c.challenge_id).where(MEMBER.c.username == bindparam("viewer"))
_PUBLIC_AND_OWN = newest_ids(
    CHALLENGE.c.id,
    _EXISTS,
    or_(CHALLENGE.c.is_public, CHALLENGE.c.creator == bindparam("viewer"), CHALLENGE.c.id.in_(_JOINED)),
)
_BY_IDS = select(CHALLENGE, MEMBERS).where(_EXISTS, CHALLENGE.c.id.in_(bindparam("ids", expanding=True)))


class Challenges:
    """Creates, reads, edits, joins and leaves challenges."""

    def __init__(self, sql: Sql, projections: ChallengeProjections, clock: Clock) -> None:
        self._sql = sql
        self._projections = projections
        self._clock = clock

    def _today(self) -> int:
        return day_number(self._clock.now_ms())

    async def create(self, actor: Actor, new: NewChallenge, operation: str | None) -> Challenge:
        """Create a challenge without joining it. The same operation again returns the same challenge."""
        now = self._clock.now_ms()
        values = {
            "title": clean_text(new.title, "title"),
            "category": new.category,
            "is_public": new.is_public,
            "duration": new.duration,
            "creator": actor.name,
            "created_ms": now,
            "ends_day": day_number(now) + new.duration,
            "unit": "" if new.unit is None else clean_text(new.unit, "unit"),
        }
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            created, is_new = await insert_once(self._sql, tx, CHALLENGE, values, operation)
            if is_new:
                await add_events(tx, STREAM, [ChallengeCreated(created.id, actor.name)], now)
            row = (await tx.execute(_BY_IDS, {"ids": [created.id]})).one_or_none()
            if row is None:
                raise NotFound("This challenge was deleted. Create another one with a new Idempotency-Key.")
        await self._projections.update_challenges([row.id])
        return challenge_from_row(row)

    async def read(self, actor: Actor | None, id: int) -> Challenge:
        """A challenge that the viewer may see. One query."""
        return challenge_from_row(await read_visible_challenge(self._sql, actor, id, counted=True))

    async def edit(self, actor: Actor, id: int, edit: ChallengeEdit) -> Challenge:
        """Change a challenge (its creator); what it was before is kept. Its members are told.

        Category and visibility stay: members chose them when they joined, and tracked and posted by them.
        """
        now = self._clock.now_ms()
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            row = await read_challenge(tx, id, actor, lock=True)
            if actor.name != row.creator:
                require_visible(actor, row)
                raise Forbidden("Only the creator can edit a challenge.")
            changes = await self._changes(tx, row, edit)
            if changes:
                before = {name: getattr(row, name) for name in ("title", "duration", "unit")}
                await keep_text(tx, "clg", id, actor.name, msgspec.json.encode(before).decode(), now)
                await tx.execute(update(CHALLENGE).where(CHALLENGE.c.id == id).values(edited_ms=now, **changes))
                await log_changed_challenge(tx, id)
                await add_events(tx, STREAM, [ChallengeEdited(id, actor.name)], now)
        await self._projections.update_challenges([id])
        return await self.read(actor, id)

    async def _changes(self, tx: AsyncConnection, row: Any, edit: ChallengeEdit) -> dict[str, Any]:
        """The columns that an edit changes, with their new values."""
        values: dict[str, Any] = {}
        if edit.title is not UNSET:
            values["title"] = clean_text(edit.title, "title")
        if edit.unit is not UNSET:
            values["unit"] = "" if edit.unit is None else clean_text(edit.unit, "unit")
        if edit.duration is not UNSET:
            values |= {"duration": edit.duration, "ends_day": day_number(row.created_ms) + edit.duration}
        changes = {name: value for name, value in values.items() if value != getattr(row, name)}
        if "duration" in changes:
            require_ongoing(row, self._today())
            if values["ends_day"] <= self._today():
                raise Invalid("must not end the challenge before tomorrow", field="duration")
        amounts = (TRACKING.c.challenge_id == row.id, TRACKING.c.amount_thousandths.is_not(None))
        if "unit" in changes and (await tx.execute(select(TRACKING.c.id).where(*amounts).limit(1))).scalar():
            raise UnitInUse("Members have tracked amounts in this unit. Start another challenge.")
        return changes

    async def page(self, actor: Actor | None, page: Page) -> ChallengesPage:
        """Challenges, newest first: public ones and the viewer's own. An admin sees all."""
        if actor is None:
            name, after = "challenges", ids_in_table(self._sql, "challenges", _PUBLIC)
        else:
            name = f"challenges for {actor.name}"
            if actor.is_admin:
                after = ids_in_table(self._sql, name, _ALL)
            else:
                after = ids_in_table(self._sql, name, _PUBLIC_AND_OWN, viewer=actor.name)
        paged = await page_by_position(name, page, after, self.read_many)
        return ChallengesPage(paged.items, paged.pagination)

    async def read_many(self, ids: Sequence[str]) -> list[Challenge | None]:
        """Challenges by id, None for an unknown one. Private ones are included. One query."""
        wanted = [int(id) for id in ids]
        found = {row.id: challenge_from_row(row) for row in await self._sql.fetch_all(_BY_IDS, ids=wanted)}
        return [found.get(id) for id in wanted]

    async def join(self, actor: Actor, id: int) -> ChallengeMembership:
        """Join a challenge; a private one only as its creator, an admin or an invited user. It ends an invitation."""
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            challenge = await read_challenge(tx, id, actor)
            is_own = actor.is_admin or actor.name == challenge.creator
            if not (challenge.is_public or is_own or challenge.is_invited or challenge.is_member):
                raise PrivateChallenge("This challenge is private. Ask its creator for an invitation.")
            require_ongoing(challenge, self._today())
            values = {"challenge_id": id, "username": actor.name, "joined_day": self._today()}
            statement = self._sql.insert(MEMBER).values(values).on_conflict_do_nothing()
            if (await tx.execute(statement.returning(MEMBER.c.id))).scalar() is None:
                raise AlreadyJoined("You are already a member of this challenge.")
            await recount(tx, id, actor.name)  # what a former member has tracked
            own = (INVITATION.c.challenge_id == id, INVITATION.c.username == actor.name)
            ended = (await tx.execute(delete(INVITATION).where(*own).returning(INVITATION))).all()
            events = [ChallengeInvitationEnded(id, actor.name, row.inviter) for row in ended]
            await add_events(tx, STREAM, [ChallengeJoined(id, actor.name), *events], self._clock.now_ms())
        return ChallengeMembership(id, actor.name, True)

    async def leave(self, actor: Actor, id: int) -> ChallengeMembership:
        """Leave a challenge. Tracked days stay."""
        mine = (MEMBER.c.challenge_id == id, MEMBER.c.username == actor.name)
        async with self._sql.begin() as tx:
            challenge = await read_challenge(tx, id, actor)
            deleted = (await tx.execute(delete(MEMBER).where(*mine).returning(MEMBER))).all()
            if not deleted:
                require_visible(actor, challenge)
                raise NotJoined("You are not a member of this challenge.")
            await log_rows(tx, DELETE_LOG, "mmbr", deleted)
            await add_events(tx, STREAM, [ChallengeLeft(id, actor.name)], self._clock.now_ms())
        return ChallengeMembership(id, actor.name, False)


def challenge_from_row(row: Any) -> Challenge:
    return Challenge(
        id=row.id,
        title=row.title,
        category=row.category,
        is_public=row.is_public,
        duration=row.duration,
        creator=row.creator,
        created_at=row.created_ms,
        finished_date=iso_date(row.ends_day),
        members=row.members,
        unit=row.unit or None,
        edited_at=row.edited_ms,
    )
