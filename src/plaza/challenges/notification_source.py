"""The challenges' part of notifications: reactions, comments, mentions in posts, and what members are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from typing import Any, Final

from sqlalchemy import func, select

from plaza.challenges import comment_notices, member_notices, reminder_notices
from plaza.challenges.comment_notices import CommentNotices
from plaza.challenges.events import (
    ChallengeLeft,
    ChallengePostDeleted,
    ChallengePosted,
    ChallengePostEdited,
    ChallengeReacted,
)
from plaza.challenges.member_notices import MemberNotices
from plaza.challenges.notification_rows import rows_by_id, seen_challenges
from plaza.challenges.reminder_notices import ReminderNotices
from plaza.challenges.tables import POST, REACTION
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

_OF_MEMBERS: Final = {each.type for each in member_notices.EVENTS}

_ReadTimes = Callable[[Sequence[Activity]], Awaitable[list[int | None]]]


class ChallengeNotifications(NotificationSource):
    """Activities about posts in challenges, and about challenges."""

    stream: Final = "challenges"
    kinds: Final = ("challenge_post", comment_notices.KIND, member_notices.KIND)
    events: Final = (
        ChallengeReacted,
        ChallengeLeft,
        ChallengePosted,
        ChallengePostEdited,
        ChallengePostDeleted,
        *comment_notices.EVENTS,
        *member_notices.EVENTS,
        *reminder_notices.EVENTS,
    )

    def __init__(self, sql: Sql, recipients: Recipients | None) -> None:
        self._sql = sql
        self._recipients = recipients
        self._comments = CommentNotices(sql, recipients)
        self._members = MemberNotices(sql)
        self._reminders = ReminderNotices(sql)
        self._time_readers: dict[str, _ReadTimes] = {
            "challenge_reaction": self._reaction_times,
            "comment": self._comments.comment_times,
            "reply": self._comments.reply_times,
            member_notices.TYPE: self._members.times,
            member_notices.INVITED: self._members.times,
            reminder_notices.TYPE: self._reminders.times,
        }
        self._mention_readers: dict[str, _ReadTimes] = {
            "challenge_post": self._mention_times,
            comment_notices.KIND: self._comments.mention_times,
        }

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return reactions, comments and mentions. Five statements, and round trips if there are mentions."""
        posts = await rows_by_id(self._sql, POST, {int(event.data["post"]) for event in events if "post" in event.data})
        found = [*await self._reminders.activities(events), *await self._comments.activities(events)]
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
            elif event.type == ChallengeReacted.type:
                group = GroupName(row.username, "challenge_reaction", _subject(row))
                found.append(Activity(group, event.data["username"], event.time, renamed=event.origin == "rename"))
        return found

    async def ended(self, events: Sequence[Event]) -> list[GroupName]:
        """Return the groups about deleted comments, and those about and below deleted posts."""
        groups = self._comments.ended(events)
        for event in events:
            if event.type == ChallengePostDeleted.type:
                data = event.data
                subject = f"challenge_post:{data['challenge']}:{data['post']}"
                types = ("challenge_reaction", "comment")
                groups += [GroupName(data["username"], type, subject) for type in types]
                below = f"{comment_notices.KIND}:{data['post']}"
                groups += [GroupName(EVERYONE_TOLD, "", each) for each in (subject, below)]
        return groups

    def rechecked(self, events: Sequence[Event]) -> set[str]:
        """Return the former members of challenges. A renamed one is still a member."""
        left = [event for event in events if event.type == ChallengeLeft.type and event.origin != "rename"]
        return {event.data["username"] for event in left}

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when users reacted, commented, replied, or mentioned others; when members were told.

        At most six statements for each type.
        """
        parts: dict[_ReadTimes, list[Activity]] = {}
        for one in activities:
            read = self._time_readers.get(one.group.type) or self._mention_readers[subject_kind(one.group.subject)]
            parts.setdefault(read, []).append(one)
        found: dict[Activity, int | None] = {}
        for read, some in parts.items():
            found |= dict(zip(some, await read(some), strict=True))
        return [found[one] for one in activities]

    async def _reaction_times(self, activities: Sequence[Activity]) -> list[int | None]:
        posts = await rows_by_id(self._sql, POST, {_post_id(one.group.subject) for one in activities})
        if not posts:
            return [None] * len(activities)
        columns = (REACTION.c.post_id, REACTION.c.username, REACTION.c.created_ms)
        where = (REACTION.c.post_id.in_(list(posts)), REACTION.c.username.in_({one.actor for one in activities}))
        rows = await self._sql.fetch_all(select(*columns).where(*where))
        found = {(posts[row.post_id].username, row.post_id, row.username): int(row.created_ms) for row in rows}
        return [found.get((one.group.recipient, _post_id(one.group.subject), one.actor)) for one in activities]

    async def _mention_times(self, activities: Sequence[Activity]) -> list[int | None]:
        posts = await rows_by_id(self._sql, POST, {_post_id(one.group.subject) for one in activities})
        names = {one.group.recipient for one in activities}
        seen = await seen_challenges(self._sql, names, {post.challenge_id for post in posts.values()})
        return [await self._mention_time(one, posts.get(_post_id(one.group.subject)), seen) for one in activities]

    async def _mention_time(self, one: Activity, post: Any, seen: Set[tuple[str, int]]) -> int | None:
        recipient = one.group.recipient
        if post is None or post.username != one.actor or (recipient, post.challenge_id) not in seen:
            return None
        return int(post.created_ms) if recipient in await mentioned_users(post.text, self._recipients) else None

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
        """Return posts and comments with the beginning of their texts, and challenges with their titles.

        Nine statements at most.
        """
        by_kind: dict[str, list[str]] = {}
        for _, subject in subjects:
            by_kind.setdefault(subject_kind(subject), []).append(subject)
        found: dict[str, NotificationSubject | Absence] = {}
        for kind, some in by_kind.items():
            if kind == member_notices.KIND:
                described = await self._members.describe(some)
            elif kind == comment_notices.KIND:
                described = await self._comments.describe(recipient, some)
            else:
                described = await self._describe_posts(recipient, some)
            found |= dict(zip(some, described, strict=True))
        return [found[subject] for _, subject in subjects]

    async def _describe_posts(self, recipient: str, subjects: Sequence[str]) -> list[NotificationSubject | Absence]:
        posts = await rows_by_id(self._sql, POST, set(map(_post_id, subjects)))
        seen = await seen_challenges(self._sql, [recipient], {post.challenge_id for post in posts.values()})
        return [_described(posts.get(_post_id(subject)), recipient, seen) for subject in subjects]

    async def activities_by(self, username: str) -> list[Activity]:
        """Return mentions in a user's latest posts, and the latest comments. Reactions have events of a renaming."""
        newest = select(POST).where(POST.c.username == username).order_by(POST.c.id.desc()).limit(SCAN_BATCH)
        found = [one for row in await self._sql.fetch_all(newest) for one in await self._mentions(row)]
        return found + await self._comments.activities_by(username)

    async def roots_of(self, username: str) -> list[str]:
        """Return a user's latest posts, as roots of the comments on them."""
        newest = select(POST.c.id).where(POST.c.username == username).order_by(POST.c.id.desc()).limit(MAX_ACTORS)
        return [f"{comment_notices.KIND}:{row.id}" for row in await self._sql.fetch_all(newest)]

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
            posts = await rows_by_id(self._sql, POST, {row.post_id for row in rows})
            groups = {id: GroupName(post.username, "challenge_reaction", _subject(post)) for id, post in posts.items()}
            yield [Activity(groups[row.post_id], row.username) for row in rows if row.post_id in groups]
        last = 0
        while rows := await self._sql.fetch_all(
            select(POST).where(POST.c.id > last, POST.c.created_ms >= since_ms).order_by(POST.c.id).limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            for row in rows:
                yield await self._mentions(row)
        for notices in (self._comments, self._members, self._reminders):
            async for found in notices.all_activities(since_ms):
                yield found

    async def _mentions(self, row: Any) -> list[Activity]:
        groups = [
            GroupName(name, "mention", _subject(row)) for name in await mentioned_users(row.text, self._recipients)
        ]
        return [Activity(group, row.username) for group in groups]


def _subject(row: Any) -> str:
    return f"challenge_post:{row.challenge_id}:{row.id}"


def _post_id(subject: str) -> int:
    return int(subject.rpartition(":")[2])


def _described(row: Any, recipient: str, seen: Set[tuple[str, int]]) -> NotificationSubject | Absence:
    if row is None:
        return Absence.GONE
    if (recipient, row.challenge_id) not in seen:  # a former member of a private challenge
        return NotificationSubject("challenge_post", str(row.id))
    url = f"/app/challenges/posts/{row.id}"
    return NotificationSubject("challenge_post", str(row.id), excerpt(row.text), url)
