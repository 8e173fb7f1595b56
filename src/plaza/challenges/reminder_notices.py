"""What members are told by reminders: that a day is not tracked yet, and that a streak ends with it.

No user is named: the actor says which of both. A reminder ends when its day is tracked, and with the membership.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from sqlalchemy import select

from plaza.challenges.events import ChallengeReminded, ChallengeTracked, ChallengeUntracked
from plaza.challenges.model import day_number
from plaza.challenges.tables import CHALLENGE, MEMBER, TRACKING
from plaza.core.events import Event
from plaza.core.notification_source import Activity, GroupName
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sequences import chunks
from plaza.core.sql import Sql

TYPE: Final = "challenge_reminder"
EVENTS: Final = (ChallengeReminded, ChallengeTracked, ChallengeUntracked)
_EVENT_TYPES: Final = {each.type for each in EVENTS}
UNTRACKED, STREAK = "@untracked", "@streak"

# Challenge id, username.
_Member = tuple[int, str]


class ReminderNotices:
    """The reminders that members were sent."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return the reminders that events send or end. One statement."""
        about = {_member_of(event) for event in events if event.type in _EVENT_TYPES}
        return [one for member, _ in await self._sent(about) for one in activities_of(*member)]

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when members were reminded of days that they have not tracked. Two statements."""
        members = {_member(one) for one in activities}
        sent = dict(await self._sent(members))
        days = await self._tracked_days(sent)
        return [_time(one, sent.get(_member(one)), days) for one in activities]

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield the reminders that were sent since a time."""
        last = 0
        columns = (MEMBER.c.id, MEMBER.c.challenge_id, MEMBER.c.username)
        while rows := await self._sql.fetch_all(
            select(*columns)
            .where(MEMBER.c.id > last, MEMBER.c.reminded_ms >= since_ms)
            .order_by(MEMBER.c.id)
            .limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            yield [one for row in rows for one in activities_of(row.challenge_id, row.username)]

    async def _sent(self, members: Collection[_Member]) -> list[tuple[_Member, int]]:
        """Return the members who were reminded, each with the time of the last reminder."""
        found: list[tuple[_Member, int]] = []
        for some in chunks(members, SCAN_BATCH):
            rows = await self._sql.fetch_all(
                select(MEMBER.c.challenge_id, MEMBER.c.username, MEMBER.c.reminded_ms)
                .join(CHALLENGE, MEMBER.c.challenge_id == CHALLENGE.c.id)
                .where(
                    MEMBER.c.challenge_id.in_({challenge for challenge, _ in some}),
                    MEMBER.c.username.in_({name for _, name in some}),
                    MEMBER.c.reminded_ms.is_not(None),
                    CHALLENGE.c.deleted_ms.is_(None),
                )
            )
            found += [((row.challenge_id, row.username), row.reminded_ms) for row in rows]
        return [(member, at) for member, at in found if member in members]

    async def _tracked_days(self, sent: dict[_Member, int]) -> set[tuple[int, str, int]]:
        """Return the tracked days that decide: those of reminders, and the days before."""
        found: set[tuple[int, str, int]] = set()
        for some in chunks(sent.items(), SCAN_BATCH):
            days = {day_number(at) - back for _, at in some for back in (0, 1)}
            rows = await self._sql.fetch_all(
                select(TRACKING.c.challenge_id, TRACKING.c.username, TRACKING.c.day).where(
                    TRACKING.c.challenge_id.in_({challenge for (challenge, _), _ in some}),
                    TRACKING.c.username.in_({name for (_, name), _ in some}),
                    TRACKING.c.day.in_(days),
                )
            )
            found |= {(row.challenge_id, row.username, row.day) for row in rows}
        return found


def activities_of(challenge: int, username: str) -> list[Activity]:
    """Return what a member may be told by a reminder: one of both, or nothing."""
    group = GroupName(username, TYPE, f"challenge:{challenge}")
    return [Activity(group, actor) for actor in (UNTRACKED, STREAK)]


def _member_of(event: Event) -> _Member:
    return int(event.data["challenge"]), event.data["username"]


def _member(one: Activity) -> _Member:
    return int(one.group.subject.rpartition(":")[2]), one.group.recipient


def _time(one: Activity, sent_ms: int | None, days: set[tuple[int, str, int]]) -> int | None:
    if sent_ms is None:
        return None
    member, day = _member(one), day_number(sent_ms)
    actor = STREAK if (*member, day - 1) in days else UNTRACKED
    return sent_ms if one.actor == actor and (*member, day) not in days else None
