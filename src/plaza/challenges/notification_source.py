"""The challenges' part of notifications: reactions, comments, mentions in posts, and what members are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence, Set
from typing import Any, Final

from sqlalchemy import Table, and_, func, or_, select

from plaza.challenges import member_notices, reminder_notices
from plaza.challenges.events import (
    ChallengeCommentDeleted,
    ChallengeCommented,
    ChallengePostDeleted,
    ChallengePosted,
    ChallengePostEdited,
    ChallengeReacted,
)
from plaza.challenges.member_notices import MemberNotices
from plaza.challenges.reminder_notices import ReminderNotices
from plaza.challenges.tables import CHALLENGE, COMMENT, MEMBER, POST, REACTION
from plaza.core.events import Event
from plaza.core.notification_source import (
    EVERYONE_TOLD,
    MAX_ACTORS,
    Absence,
    Activity,
    GroupName,
    LatestActors,
    NotificationSource,
    NotificationSubject,
    Recipients,
    excerpt,
    mentioned_users,
    subject_kind,
)
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sql import Sql

# The types of what actors did to a post, and the tables with it.
_BY_ACTORS: Final = {"challenge_reaction": REACTION, "comment": COMMENT}
_OF_MEMBERS: Final = {each.type for each in member_notices.EVENTS}

_ReadTimes = Callable[[Sequence[Activity]], Awaitable[list[int | None]]]


class ChallengeNotifications(NotificationSource):
    """Activities about posts in challenges, and about challenges."""

    stream: Final = "challenges"
    kinds: Final = ("challenge_post", member_notices.KIND)
    events: Final = (
        ChallengeReacted,
        ChallengeCommented,
        ChallengeCommentDeleted,
        ChallengePosted,
        ChallengePostEdited,
        ChallengePostDeleted,
        *member_notices.EVENTS,
        *reminder_notices.EVENTS,
    )

    def __init__(self, sql: Sql, recipients: Recipients | None) -> None:
        self._sql = sql
        self._recipients = recipients
        self._members = MemberNotices(sql)
        self._reminders = ReminderNotices(sql)
        self._time_readers: dict[str, _ReadTimes] = {
            member_notices.TYPE: self._members.times,
            member_notices.INVITED: self._members.times,
            reminder_notices.TYPE: self._reminders.times,
        }

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return reactions, comments and mentions. Two statements, and a round trip if there are mentions."""
        posts = await self._posts({int(event.data["post"]) for event in events if "post" in event.data})
        found = await self._reminders.activities(events)
        for event in events:
            if event.type in _OF_MEMBERS:
                found += await self._members.activities(event)
            row = posts.get(int(event.data.get("post", 0)))
            if row is None:
                continue
            if event.type == ChallengePosted.type:
                found += await self._mentions(row)
            elif event.type == ChallengePostEdited.type:
                found += await self._mentions(row)
                found.append(Activity(GroupName(EVERYONE_TOLD, "mention", _subject(row)), row.username))
            elif "comment" in event.data:
                found.append(_comment_activity(row, event.data["username"], event.data["comment"]))
            else:
                group = GroupName(row.username, "challenge_reaction", _subject(row))
                found.append(Activity(group, event.data["username"], event.time, renamed=event.origin == "rename"))
        return found

    async def ended(self, events: Sequence[Event]) -> list[GroupName]:
        """Return the groups about deleted posts."""
        groups: list[GroupName] = []
        for event in events:
            if event.type == ChallengePostDeleted.type:
                data = event.data
                subject = f"challenge_post:{data['challenge']}:{data['post']}"
                types = ("challenge_reaction", "comment")
                groups += [GroupName(data["username"], type, subject) for type in types]
                groups.append(GroupName(EVERYONE_TOLD, "", subject))
        return groups

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when users reacted or last commented; of a mention, when the post was written; when members were told.

        Three statements for posts, four for challenges, two for reminders.
        """
        parts: dict[_ReadTimes, list[Activity]] = {}
        for one in activities:
            parts.setdefault(self._time_readers.get(one.group.type, self._times_of_posts), []).append(one)
        found: dict[Activity, int | None] = {}
        for read, some in parts.items():
            found |= dict(zip(some, await read(some), strict=True))
        return [found[one] for one in activities]

    async def _times_of_posts(self, activities: Sequence[Activity]) -> list[int | None]:
        posts = await self._posts({_post_id(one.group.subject) for one in activities})
        latest = {type: await self._latest_by(table, type, activities, posts) for type, table in _BY_ACTORS.items()}
        return [await self._time(one, posts.get(_post_id(one.group.subject)), latest) for one in activities]

    async def _latest_by(
        self, table: Table, type: str, activities: Sequence[Activity], posts: Collection[int]
    ) -> dict[tuple[int, str], int]:
        """Return when each actor last reacted to a post, or commented on it."""
        actors = {one.actor for one in activities if one.group.type == type}
        if not actors or not posts:
            return {}
        keys = (table.c.post_id, table.c.username)
        latest = select(*keys, func.max(table.c.created_ms).label("at")).group_by(*keys)
        where = (table.c.post_id.in_(list(posts)), table.c.username.in_(list(actors)))
        return {(row.post_id, row.username): int(row.at) for row in await self._sql.fetch_all(latest.where(*where))}

    async def _time(self, one: Activity, post: Any, latest: Mapping[str, Mapping[tuple[int, str], int]]) -> int | None:
        if post is None:
            return None
        if one.group.type in latest:
            return latest[one.group.type].get((post.id, one.actor)) if post.username == one.group.recipient else None
        is_told = post.username == one.actor and one.group.recipient in await mentioned_users(
            post.text, self._recipients
        )
        return int(post.created_ms) if is_told and await self._can_see(one.group.recipient, post.challenge_id) else None

    async def latest(
        self, group: GroupName, since_ms: int, until_ms: int | None, uncounted: Set[str]
    ) -> LatestActors | None:
        """Return the latest reactions. Two statements."""
        if group.type != "challenge_reaction":
            return None
        where = [REACTION.c.post_id == _post_id(group.subject), REACTION.c.created_ms >= since_ms]
        if until_ms is not None:
            where.append(REACTION.c.created_ms < until_ms)
        counted = [*where, REACTION.c.username.not_in(list(uncounted))]
        newest = select(REACTION.c.username, REACTION.c.created_ms).where(*where)
        rows = await self._sql.fetch_all(newest.order_by(REACTION.c.created_ms.desc()).limit(MAX_ACTORS))
        (total,) = await self._sql.fetch_all(select(func.count().label("total")).select_from(REACTION).where(*counted))
        return LatestActors([(row.username, int(row.created_ms)) for row in rows], int(total.total))

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> list[NotificationSubject | Absence]:
        """Return posts with the beginning of their texts. One statement."""
        of_members = [subject for _, subject in subjects if subject_kind(subject) == member_notices.KIND]
        if of_members:
            found = dict(zip(of_members, await self._members.describe(of_members), strict=True))
            others = [pair for pair in subjects if pair[1] not in found]
            found |= dict(zip([each for _, each in others], await self.describe(recipient, others), strict=True))
            return [found[subject] for _, subject in subjects]
        posts = await self._posts({_post_id(subject) for _, subject in subjects})
        return [_described(posts.get(_post_id(subject))) for _, subject in subjects]

    async def activities_by(self, username: str) -> list[Activity]:
        """Return mentions in a user's latest posts, and the latest comments. Reactions have events of a renaming."""
        newest = select(POST).where(POST.c.username == username).order_by(POST.c.id.desc()).limit(SCAN_BATCH)
        found = [one for row in await self._sql.fetch_all(newest) for one in await self._mentions(row)]
        comments = select(COMMENT).where(COMMENT.c.username == username).order_by(COMMENT.c.id.desc())
        return found + await self._comments(await self._sql.fetch_all(comments.limit(MAX_ACTORS)))

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield reactions, comments and posts since a time."""
        last = 0
        reactions = select(REACTION.c.id, REACTION.c.username, REACTION.c.post_id)
        while rows := await self._sql.fetch_all(
            reactions.where(REACTION.c.id > last, REACTION.c.created_ms >= since_ms)
            .order_by(REACTION.c.id)
            .limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            posts = await self._posts({row.post_id for row in rows})
            groups = {id: GroupName(post.username, "challenge_reaction", _subject(post)) for id, post in posts.items()}
            yield [Activity(groups[row.post_id], row.username) for row in rows if row.post_id in groups]
        last = 0
        while rows := await self._sql.fetch_all(
            select(COMMENT)
            .where(COMMENT.c.id > last, COMMENT.c.created_ms >= since_ms)
            .order_by(COMMENT.c.id)
            .limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            yield await self._comments(rows)
        last = 0
        while rows := await self._sql.fetch_all(
            select(POST).where(POST.c.id > last, POST.c.created_ms >= since_ms).order_by(POST.c.id).limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            for row in rows:
                yield await self._mentions(row)
        for notices in (self._members, self._reminders):
            async for found in notices.all_activities(since_ms):
                yield found

    async def _comments(self, rows: Sequence[Any]) -> list[Activity]:
        posts = await self._posts({row.post_id for row in rows})
        return [_comment_activity(posts[row.post_id], row.username, row.id) for row in rows if row.post_id in posts]

    async def _mentions(self, row: Any) -> list[Activity]:
        groups = [
            GroupName(name, "mention", _subject(row)) for name in await mentioned_users(row.text, self._recipients)
        ]
        return [Activity(group, row.username) for group in groups]

    async def _can_see(self, username: str, challenge: int) -> bool:
        """Whether a user sees a challenge: it is public, or the user created it or takes part in it."""
        joined = and_(MEMBER.c.challenge_id == CHALLENGE.c.id, MEMBER.c.username == username)
        is_seen = or_(
            CHALLENGE.c.is_public, CHALLENGE.c.creator == username, select(MEMBER.c.id).where(joined).exists()
        )
        return bool(await self._sql.fetch_all(select(CHALLENGE.c.id).where(CHALLENGE.c.id == challenge, is_seen)))

    async def _posts(self, ids: set[int]) -> dict[int, Any]:
        if not ids:
            return {}
        return {row.id: row for row in await self._sql.fetch_all(select(POST).where(POST.c.id.in_(sorted(ids))))}


def _comment_activity(post: Any, username: str, comment: int) -> Activity:
    return Activity(GroupName(post.username, "comment", _subject(post)), username, ref=str(comment))


def _subject(row: Any) -> str:
    return f"challenge_post:{row.challenge_id}:{row.id}"


def _post_id(subject: str) -> int:
    return int(subject.rpartition(":")[2])


def _described(row: Any) -> NotificationSubject | Absence:
    if row is None:
        return Absence.GONE
    url = f"/app/challenges/posts/{row.id}"
    return NotificationSubject("challenge_post", str(row.id), excerpt(row.text), url)
