"""The days that members track, and what they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, select

from plaza.challenges.events import STREAM, ChallengeTracked, ChallengeUntracked
from plaza.challenges.member_totals import from_row, read_totals, recount
from plaza.challenges.model import (
    AlreadyTracked,
    ChallengeProgress,
    ChallengeReminder,
    NewTracking,
    NotMember,
    NotTracked,
    Totals,
    TrackedDay,
    TrackedDaysPage,
    day_number,
    from_thousandths,
    iso_date,
    parse_date,
    to_thousandths,
)
from plaza.challenges.post_deletion import delete_logged
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import log_rows, read_challenge, read_membership, require_ongoing, require_visible
from plaza.challenges.tables import INSERT_LOG, TRACKING
from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username

_OF_USER = newest_ids(
    TRACKING.c.id, TRACKING.c.challenge_id == bindparam("challenge"), TRACKING.c.username == bindparam("viewer")
)
_BY_IDS = select(TRACKING).where(TRACKING.c.id.in_(bindparam("ids", expanding=True)))


class ChallengeTracking:
    """Tracks days, takes them back, and reads what a user has tracked."""

    def __init__(self, sql: Sql, projections: ChallengeProjections, clock: Clock) -> None:
        self._sql = sql
        self._projections = projections
        self._clock = clock

    def _today(self) -> int:
        return day_number(self._clock.now_ms())

    async def track(self, actor: Actor, id: int, new: NewTracking) -> TrackedDay:
        """Track a day of progress: today, or a day since joining."""
        today = self._today()
        day = today if new.date is None else parse_date(new.date)
        amount = None if new.amount is None else to_thousandths(new.amount)
        if day > today:
            raise Invalid("must not be in the future", field="date")
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            challenge = await self._require_trackable(tx, actor, id, day)
            if amount is not None and not challenge.unit:
                raise Invalid("must be left out: this challenge has no unit and counts days only", field="amount")
            values = {"challenge_id": id, "username": actor.name, "day": day, "amount_thousandths": amount}
            statement = self._sql.insert(TRACKING).values(values).on_conflict_do_nothing()
            row = (await tx.execute(statement.returning(TRACKING))).one_or_none()
            if row is None:
                raise AlreadyTracked("You have already tracked this day.", date=iso_date(day))
            await log_rows(tx, INSERT_LOG, "tracking", [row])
            await recount(tx, id, actor.name)
            tracked = ChallengeTracked(id, actor.name, iso_date(day))
            await add_events(tx, STREAM, [tracked], self._clock.now_ms())
        await self._projections.contributions.update([actor.name])
        return tracked_day(row)

    async def _require_trackable(self, tx: AsyncConnection, actor: Actor, id: int, day: int) -> Any:
        challenge = await read_challenge(tx, id)
        member = await read_membership(tx, id, actor.name, lock="update")
        if member is None:
            raise NotMember("Only members can track days. Join the challenge first.")
        if day < member.joined_day:
            raise Invalid("must not be before you joined", field="date")
        if day >= challenge.ends_day:
            if day == self._today():
                require_ongoing(challenge, day)
            raise Invalid("must be before the challenge ended", field="date")
        return challenge

    async def untrack(self, actor: Actor, id: int, date: str | None = None) -> ChallengeProgress:
        """Take back a tracked day, today by default. Former members and members of ended challenges can do this too."""
        day = self._today() if date is None else parse_date(date)
        tracked = (TRACKING.c.challenge_id == id, TRACKING.c.username == actor.name, TRACKING.c.day == day)
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            challenge = await read_challenge(tx, id, actor)
            member = await read_membership(tx, id, actor.name, lock="update")
            if not await delete_logged(tx, "tracking", TRACKING, *tracked):
                require_visible(actor, challenge)
                raise NotTracked("You have not tracked this day.", date=iso_date(day))
            totals = await recount(tx, id, actor.name)
            untracked = ChallengeUntracked(id, actor.name, iso_date(day))
            await add_events(tx, STREAM, [untracked], self._clock.now_ms())
        await self._projections.contributions.update([actor.name])
        return self._progress(actor, id, totals, member)

    async def progress(self, actor: Actor, id: int) -> ChallengeProgress:
        """What a user has tracked in a challenge, also after leaving it. Three queries."""
        async with self._sql.read() as tx:
            challenge = await read_challenge(tx, id, actor)
            member = await read_membership(tx, id, actor.name)
            totals = await read_totals(tx, id, actor.name) if member is None else from_row(member)
        if not totals.days:
            require_visible(actor, challenge)
        return self._progress(actor, id, totals, member)

    def _progress(self, actor: Actor, id: int, totals: Totals, member: Any) -> ChallengeProgress:
        return ChallengeProgress(
            challenge_id=id,
            username=actor.name,
            member=member is not None,
            days=totals.days,
            amount=from_thousandths(totals.amount_thousandths),
            current_streak=totals.current_streak(self._today()),
            longest_streak=totals.longest_streak,
            last_date=iso_date(totals.last_day) if totals.days else None,
            reminder=reminder_of(member),
        )

    async def page(self, actor: Actor, id: int, page: Page) -> TrackedDaysPage:
        """The days that a user has tracked in a challenge, last tracked first. Two queries."""
        name = f"days of {actor.name} in challenge {id}"
        after = ids_in_table(self._sql, name, _OF_USER, challenge=id, viewer=actor.name)
        paged = await page_by_position(name, page, after, self._read_many)
        if not paged.items:
            await self.progress(actor, id)  # 404 or 403 for a challenge that the user does not see
        return TrackedDaysPage(paged.items, paged.pagination)

    async def _read_many(self, ids: Sequence[str]) -> list[TrackedDay | None]:
        wanted = [int(id) for id in ids]
        found = {row.id: tracked_day(row) for row in await self._sql.fetch_all(_BY_IDS, ids=wanted)}
        return [found.get(id) for id in wanted]


def reminder_of(member: Any) -> ChallengeReminder | None:
    """The reminder that a member has set; None without a complete one."""
    values = None if member is None else (member.reminder_hour, member.reminder_time_zone, member.reminder_due_ms)
    return None if values is None or None in values else ChallengeReminder(*values)


def tracked_day(row: Any) -> TrackedDay:
    amount = None if row.amount_thousandths is None else from_thousandths(row.amount_thousandths)
    return TrackedDay(row.id, row.challenge_id, row.username, iso_date(row.day), amount)
