"""Reminders: a member is told at an hour of the day if the day is not tracked yet.

A reminder is part of a membership: four columns of `member`. `reminder_due_ms` has an index of its own, so finding due
reminders reads only these. A day is sent in one transaction, which holds the member's row as tracking does: the time of
the next reminder, that of this one, and its event. So several workers, a crash or a clock that is set back send none
twice, and none is sent after the day was tracked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, bindparam, select, update

from plaza.challenges.events import STREAM, ChallengeReminded
from plaza.challenges.local_hours import local_date, next_hour_ms, require_time_zone
from plaza.challenges.model import DAY_MS, ChallengeProgress, NewReminder, NotMember, day_number, iso_date
from plaza.challenges.projection import ChallengeProjections
from plaza.challenges.queries import read_challenge, read_membership, require_ongoing
from plaza.challenges.tables import CHALLENGE, MEMBER, TRACKING
from plaza.challenges.tracking import ChallengeTracking
from plaza.core.async_engine import AsyncConnection
from plaza.core.auth import Actor
from plaza.core.sql_events import add_events
from plaza.core.user_states import UserStates
from plaza.core.username_locks import lock_username

# Reminders sent in one transaction.
BATCH: Final = 200
# No reminder is due later than this. One that is was computed while the clock was wrong.
MAX_AHEAD_MS: Final = 2 * DAY_MS

_NONE: Final = {"reminder_hour": None, "reminder_time_zone": None, "reminder_due_ms": None}
_WRITE = (
    update(MEMBER)
    .where(MEMBER.c.id == bindparam("row"))
    .values({name: bindparam(f"new_{name}") for name in (*_NONE, "reminded_ms")})
)


class ChallengeReminders:
    """Saves and removes the reminders of members, and sends those that are due."""

    def __init__(
        self, projections: ChallengeProjections, tracking: ChallengeTracking, user_states: UserStates | None = None
    ) -> None:
        self._projections = projections
        self._sql = projections.sql
        self._tracking = tracking
        self._user_states = user_states

    async def save(self, actor: Actor, id: int, new: NewReminder) -> ChallengeProgress:
        """Save the hour at which a member is reminded of a day that is not tracked. It replaces an earlier one."""
        zone = require_time_zone(new.time_zone)
        due = next_hour_ms(self._now(), new.hour, zone)
        await self._write(
            actor, id, {"reminder_hour": new.hour, "reminder_time_zone": zone, "reminder_due_ms": due}, is_new=True
        )
        return await self._tracking.progress(actor, id)

    async def remove(self, actor: Actor, id: int) -> ChallengeProgress:
        """Remove the reminder of a member. Without one, nothing changes."""
        await self._write(actor, id, _NONE, is_new=False)
        return await self._tracking.progress(actor, id)

    async def send_due(self, max_batches: int) -> int:
        """Send the reminders that are due, in batches. Returns how many were sent.

        Each batch takes a round trip to Valkey and five statements.
        """
        sent = 0
        for condition in (
            MEMBER.c.reminder_due_ms <= self._now(),
            MEMBER.c.reminder_due_ms > self._now() + MAX_AHEAD_MS,
        ):
            for _ in range(max_batches):
                found, told = await self._send_batch(condition)
                sent += told
                if found < BATCH:
                    break
        return sent

    def _now(self) -> int:
        return self._projections.clock.now_ms()

    async def _write(self, actor: Actor, id: int, values: dict[str, Any], *, is_new: bool) -> None:
        async with self._sql.begin() as tx:
            await lock_username(tx, self._projections.valkey, actor.name, actor.since_ms)
            challenge = await read_challenge(tx, id)
            member = await read_membership(tx, id, actor.name, lock="update")
            if member is None:
                raise NotMember("Only members have reminders. Join the challenge first.")
            if is_new:
                require_ongoing(challenge, day_number(self._now()))
            await tx.execute(update(MEMBER).where(MEMBER.c.id == member.id).values(values))

    async def _send_batch(self, condition: ColumnElement[bool]) -> tuple[int, int]:
        """Handle a batch of reminders. Returns how many there were, and how many were sent."""
        due = select(MEMBER.c.id, MEMBER.c.username).where(condition).order_by(MEMBER.c.reminder_due_ms).limit(BATCH)
        found = await self._sql.fetch_all(due)
        if not found:
            return 0, 0
        active = await self._active({row.username for row in found})
        rows = (
            select(MEMBER, CHALLENGE.c.ends_day)
            .join(CHALLENGE, MEMBER.c.challenge_id == CHALLENGE.c.id)
            .where(MEMBER.c.id.in_([row.id for row in found]), condition)
            .order_by(MEMBER.c.id)
            .with_for_update(of=MEMBER, skip_locked=True)
        )
        async with self._sql.begin() as tx:
            now, locked = self._now(), (await tx.execute(rows)).all()
            told = {row.id for row in await self._untracked(tx, locked, now) if row.username in active}
            if locked:
                await tx.execute(_WRITE, [_next_state(row, now, is_told=row.id in told) for row in locked])
            events = [_reminded(row, now) for row in locked if row.id in told]
            await add_events(tx, STREAM, events, now)
        return len(locked), len(told)

    async def _active(self, names: set[str]) -> set[str]:
        """Return the users who exist and are not suspended. One round trip."""
        if self._user_states is None:
            return names
        states = await self._user_states.user_states(sorted(names))
        return {state.username for state in states if state is not None and state.suspended_ms is None}

    async def _untracked(self, tx: AsyncConnection, rows: Sequence[Any], now: int) -> list[Any]:
        """Return the members to remind now: their day goes on, is not tracked, and had no reminder yet."""
        waiting = [row for row in rows if _is_waiting(row, now)]
        tracked = select(TRACKING.c.challenge_id, TRACKING.c.username).where(
            TRACKING.c.day == day_number(now),
            TRACKING.c.challenge_id.in_({row.challenge_id for row in waiting}),
            TRACKING.c.username.in_({row.username for row in waiting}),
        )
        done = {(row.challenge_id, row.username) for row in await tx.execute(tracked)} if waiting else set()
        return [row for row in waiting if (row.challenge_id, row.username) not in done]


def _has_reminder(row: Any, now: int) -> bool:
    """Whether a member still has a reminder: the challenge goes on, and the stored hour is one."""
    return row.ends_day > day_number(now) and row.reminder_time_zone is not None and row.reminder_hour in range(24)


def _is_waiting(row: Any, now: int) -> bool:
    """Whether a reminder is due, on the local and the UTC day that it was made for, and none was sent on this day."""
    if not _has_reminder(row, now) or day_number(row.reminder_due_ms) != day_number(now):
        return False
    today = local_date(now, row.reminder_time_zone)
    sent = None if row.reminded_ms is None else local_date(row.reminded_ms, row.reminder_time_zone)
    return sent != today and local_date(row.reminder_due_ms, row.reminder_time_zone) == today


def _next_state(row: Any, now: int, *, is_told: bool) -> dict[str, Any]:
    """Return the parameters of `_WRITE` for a member whose reminder was due."""
    values: dict[str, Any] = dict(_NONE)
    if _has_reminder(row, now):
        values = {name: getattr(row, name) for name in _NONE}
        values["reminder_due_ms"] = next_hour_ms(now, row.reminder_hour, row.reminder_time_zone)
    values["reminded_ms"] = now if is_told else row.reminded_ms
    return {"row": row.id, **{f"new_{name}": value for name, value in values.items()}}


def _reminded(row: Any, now: int) -> ChallengeReminded:
    today = day_number(now)
    streak = row.streak if row.last_day == today - 1 else 0
    return ChallengeReminded(row.challenge_id, row.username, iso_date(today), streak)
