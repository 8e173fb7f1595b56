"""What users are told of challenges: that they are invited, and that one they joined was edited or deleted.

The subject is `challenge:<id>`. Of edits and deletions no user is named: the actor says what happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import or_, select

from plaza.challenges.events import ChallengeDeleted, ChallengeEdited, ChallengeInvitationEnded, ChallengeInvited
from plaza.challenges.reminder_notices import activities_of
from plaza.challenges.tables import CHALLENGE, INVITATION, MEMBER
from plaza.core.events import Event
from plaza.core.notification_source import Absence, Activity, GroupName, NotificationSubject
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sequences import chunks
from plaza.core.sql import Sql

KIND: Final = "challenge"
TYPE: Final = "challenge"
INVITED: Final = "challenge_invitation"
EVENTS: Final = (ChallengeEdited, ChallengeDeleted, ChallengeInvited, ChallengeInvitationEnded)
# The actors of a notification, and the columns with their times.
_ACTIONS: Final = {"@edited": "edited_ms", "@deleted": "deleted_ms"}


class MemberNotices:
    """The notifications of a challenge's members."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def activities(self, event: Event) -> list[Activity]:
        """Return a notice for each member, and for the creator, without who did it. A deletion ends reminders."""
        id, data = int(event.data["challenge"]), event.data
        if "inviter" in data:
            return [Activity(GroupName(data["username"], INVITED, f"{KIND}:{id}"), data["inviter"])]
        rows = await self._sql.fetch_all(_members(id))
        names = {row.username for row in rows} | {data["creator"]}
        names -= {"", data.get("username", data["creator"])}
        groups = [GroupName(name, TYPE, f"{KIND}:{id}") for name in sorted(names)]
        changes = [Activity(group, actor) for group in groups for actor in _ACTIONS]
        is_deleted = event.type == ChallengeDeleted.type
        return changes + [
            one for row in rows if is_deleted and row.reminded_ms for one in activities_of(id, row.username)
        ]

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when a challenge was edited or deleted, if the recipient is a member or its creator."""
        challenges = await self.challenges({_id(one.group.subject) for one in activities})
        members: set[tuple[int, str]] = set()
        for some in chunks({one.group.recipient for one in activities}, SCAN_BATCH):
            where = MEMBER.c.challenge_id.in_(list(challenges)) & MEMBER.c.username.in_(some)
            rows = await self._sql.fetch_all(select(MEMBER.c.challenge_id, MEMBER.c.username).where(where))
            members |= {(row.challenge_id, row.username) for row in rows}
        invited = await self._invitations(activities)
        return [
            invited.get((_id(one.group.subject), one.group.recipient, one.actor))
            if one.group.type == INVITED
            else _time(one, challenges.get(_id(one.group.subject)), members)
            for one in activities
        ]

    async def _invitations(self, activities: Sequence[Activity]) -> dict[tuple[int, str, str], int]:
        """Return when users were invited, by challenge, invited user and inviter."""
        names = {one.group.recipient for one in activities if one.group.type == INVITED}
        found: dict[tuple[int, str, str], int] = {}
        for some in chunks(names, SCAN_BATCH):
            rows = await self._sql.fetch_all(select(INVITATION).where(INVITATION.c.username.in_(some)))
            found |= {(row.challenge_id, row.username, row.inviter): row.created_ms for row in rows}
        return found

    async def describe(self, subjects: Sequence[str]) -> list[NotificationSubject | Absence]:
        """Return challenges with their titles; a deleted one has no page. One statement."""
        challenges = await self.challenges({_id(subject) for subject in subjects})
        return [_described(challenges.get(_id(subject))) for subject in subjects]

    async def challenges(self, ids: set[int]) -> Mapping[int, Any]:
        if not ids:
            return {}
        return {
            row.id: row for row in await self._sql.fetch_all(select(CHALLENGE).where(CHALLENGE.c.id.in_(sorted(ids))))
        }

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield the notices of challenges that were edited or deleted since a time, and invitations."""
        for row in await self._sql.fetch_all(select(INVITATION).where(INVITATION.c.created_ms >= since_ms)):
            yield [Activity(GroupName(row.username, INVITED, f"{KIND}:{row.challenge_id}"), row.inviter)]
        changed = or_(CHALLENGE.c.edited_ms >= since_ms, CHALLENGE.c.deleted_ms >= since_ms)
        for row in await self._sql.fetch_all(select(CHALLENGE).where(changed)):
            names = [member.username for member in await self._sql.fetch_all(_members(row.id))]
            for actor, column in _ACTIONS.items():
                if (getattr(row, column) or 0) >= since_ms:
                    groups = [GroupName(name, TYPE, f"{KIND}:{row.id}") for name in names if name != row.creator]
                    yield [Activity(group, actor) for group in groups]


def _members(challenge: int) -> Any:
    return select(MEMBER.c.username, MEMBER.c.reminded_ms).where(MEMBER.c.challenge_id == challenge)


def _id(subject: str) -> int:
    return int(subject.rpartition(":")[2])


def _time(one: Activity, challenge: Any, members: set[tuple[int, str]]) -> int | None:
    if challenge is None or one.actor not in _ACTIONS:
        return None
    is_told = (challenge.id, one.group.recipient) in members or challenge.creator == one.group.recipient
    if one.actor == "@edited" and challenge.deleted_ms is not None:
        return None
    at: int | None = getattr(challenge, _ACTIONS[one.actor])
    return at if is_told else None


def _described(row: Any) -> NotificationSubject | Absence:
    if row is None:
        return Absence.GONE
    url = "" if row.deleted_ms is not None else f"/app/challenges/{row.id}"
    return NotificationSubject(KIND, str(row.id), row.title, url)
