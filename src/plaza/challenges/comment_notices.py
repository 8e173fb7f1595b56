"""What is told of comments on posts: to the post's author, to the user replied to, and to the users mentioned.

A user is told of a comment once: as the first of these. Replies and mentions in a private challenge are told only to
users who see it. The subject of a reply or a mention is `challenge_comment:<post>:<comment>`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, func, select

from plaza.challenges.events import ChallengeCommentDeleted, ChallengeCommented, ChallengeCommentEdited
from plaza.challenges.notification_rows import rows_by_id, seen_challenges
from plaza.challenges.tables import COMMENT, POST
from plaza.core.events import Event
from plaza.core.notification_source import (
    EVERYONE_TOLD,
    MAX_ACTORS,
    Absence,
    Activity,
    GroupName,
    NotificationSubject,
    Recipients,
    excerpt,
    mentioned_users,
)
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sql import Sql

KIND: Final = "challenge_comment"
EVENTS: Final = (ChallengeCommented, ChallengeCommentEdited, ChallengeCommentDeleted)


class _Comment(NamedTuple):
    """A comment, maybe a deleted one, of which its event knows the rest."""

    id: int
    post_id: int
    username: str
    reply_to: int | None
    content: str = ""


class CommentNotices:
    """The notifications of comments."""

    def __init__(self, sql: Sql, recipients: Recipients | None) -> None:
        self._sql = sql
        self._recipients = recipients

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return who may be told of comments; of an edited one, also who was told.

        Three statements, and a round trip for each comment with mentions.
        """
        about = [event for event in events if "comment" in event.data]
        rows = await rows_by_id(self._sql, COMMENT, {event.data["comment"] for event in about})
        comments = {event.data["comment"]: _of_event(event) for event in about} | rows
        found = await self._of_comments(comments.values())
        for event in about:
            if event.type == ChallengeCommentEdited.type:
                group = GroupName(EVERYONE_TOLD, "mention", _subject(event.data["post"], event.data["comment"]))
                found.append(Activity(group, event.data["username"]))
        return found

    def ended(self, events: Sequence[Event]) -> list[GroupName]:
        """Return the groups about deleted comments."""
        deleted = [event.data for event in events if event.type == ChallengeCommentDeleted.type]
        return [GroupName(EVERYONE_TOLD, "", _subject(data["post"], data["comment"])) for data in deleted]

    async def comment_times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when actors last commented on posts of the recipients. Two statements."""
        ids = [int(one.group.subject.rpartition(":")[2]) for one in activities]
        posts = await rows_by_id(self._sql, POST, set(ids))
        latest = await self._latest(COMMENT.c.post_id, activities, posts)
        own = {(id, post.username) for id, post in posts.items()}
        return [
            latest.get((id, one.actor)) if (id, one.group.recipient) in own else None
            for id, one in zip(ids, activities, strict=True)
        ]

    async def reply_times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when actors last replied to comments of the recipients. Five statements at most."""
        comments = await self._visible_comments(activities)
        latest = await self._latest(COMMENT.c.reply_to, activities, {row.post_id for row in comments.values()})
        return [
            latest.get((row.id, one.actor)) if row is not None and row.username == one.group.recipient else None
            for one in activities
            for row in (comments.get(one),)
        ]

    async def mention_times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when comments were written that mention the recipients. Five statements at most, and round trips."""
        comments = await self._visible_comments(activities)
        parents = await rows_by_id(self._sql, COMMENT, {row.reply_to for row in comments.values() if row.reply_to})
        return [await self._mention_time(one, comments.get(one), parents) for one in activities]

    async def _mention_time(self, one: Activity, row: Any, parents: Mapping[int, Any]) -> int | None:
        if row is None or row.username != one.actor:
            return None
        parent = parents.get(row.reply_to)
        is_told_of_reply = parent is not None and parent.username == one.group.recipient
        mentioned = await mentioned_users(row.content, self._recipients)
        return int(row.created_ms) if one.group.recipient in mentioned and not is_told_of_reply else None

    async def _visible_comments(self, activities: Sequence[Activity]) -> dict[Activity, Any]:
        """Return the comments that replies and mentions are about, where the recipient sees them.

        The author of the post is told of all comments on it, and so of no reply or mention.
        """
        comments = await rows_by_id(self._sql, COMMENT, {_comment_id(one.group.subject) for one in activities})
        posts = await rows_by_id(self._sql, POST, {row.post_id for row in comments.values()})
        names = {one.group.recipient for one in activities}
        seen = await seen_challenges(self._sql, names, {post.challenge_id for post in posts.values()})
        found: dict[Activity, Any] = {}
        for one in activities:
            row, recipient = comments.get(_comment_id(one.group.subject)), one.group.recipient
            if row is not None and (recipient, row.challenge_id) in seen and posts[row.post_id].username != recipient:
                found[one] = row
        return found

    async def _latest(
        self, about: Column[Any], activities: Sequence[Activity], posts: Collection[int]
    ) -> dict[tuple[int, str], int]:
        """Return when each actor last commented on a post, or last replied to a comment on one."""
        if not posts:
            return {}
        keys = (about.label("about"), COMMENT.c.username)
        where = (COMMENT.c.post_id.in_(list(posts)), COMMENT.c.username.in_({one.actor for one in activities}))
        latest = select(*keys, func.max(COMMENT.c.created_ms).label("at")).where(*where).group_by(*keys)
        return {(row.about, row.username): int(row.at) for row in await self._sql.fetch_all(latest)}

    async def describe(self, recipient: str, subjects: Sequence[str]) -> list[NotificationSubject | Absence]:
        """Return comments with the beginning of their texts. Two statements, three in private challenges."""
        comments = await rows_by_id(self._sql, COMMENT, set(map(_comment_id, subjects)))
        seen = await seen_challenges(self._sql, [recipient], {row.challenge_id for row in comments.values()})
        return [_described(comments.get(_comment_id(subject)), recipient, seen) for subject in subjects]

    async def activities_by(self, username: str) -> list[Activity]:
        """Return what a user's latest comments may tell."""
        newest = select(COMMENT).where(COMMENT.c.username == username).order_by(COMMENT.c.id.desc())
        return await self._of_comments(await self._sql.fetch_all(newest.limit(MAX_ACTORS)))

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield what the comments since a time may tell."""
        last = 0
        recent = select(COMMENT).where(COMMENT.c.created_ms >= since_ms).order_by(COMMENT.c.id).limit(SCAN_BATCH)
        while rows := await self._sql.fetch_all(recent.where(COMMENT.c.id > last)):
            last = rows[-1].id
            yield await self._of_comments(rows)

    async def _of_comments(self, comments: Iterable[Any]) -> list[Activity]:
        known = list(comments)
        posts = await rows_by_id(self._sql, POST, {row.post_id for row in known})
        parents = await rows_by_id(self._sql, COMMENT, {row.reply_to for row in known if row.reply_to})
        found: list[Activity] = []
        for row in known:
            post, parent = posts.get(row.post_id), parents.get(row.reply_to)
            if post is None:
                continue
            groups = [GroupName(post.username, "comment", f"challenge_post:{post.challenge_id}:{post.id}")]
            if parent is not None:
                groups.append(GroupName(parent.username, "reply", _subject(post.id, parent.id)))
            mentioned = await mentioned_users(row.content, self._recipients)
            groups += [GroupName(name, "mention", _subject(post.id, row.id)) for name in sorted(mentioned)]
            found += [Activity(group, row.username, ref=str(row.id), owner=post.username) for group in groups]
        return found


def _of_event(event: Event) -> _Comment:
    data = event.data
    return _Comment(data["comment"], data["post"], data["username"], data.get("reply_to"))


def _subject(post: int, comment: int) -> str:
    return f"{KIND}:{post}:{comment}"


def _comment_id(subject: str) -> int:
    return int(subject.rpartition(":")[2])


def _described(row: Any, recipient: str, seen: Set[tuple[str, int]]) -> NotificationSubject | Absence:
    if row is None:
        return Absence.GONE
    if (recipient, row.challenge_id) not in seen:  # a former member of a private challenge
        return NotificationSubject(KIND, str(row.id))
    url = f"/app/challenges/posts/{row.post_id}#comment-{row.id}"
    return NotificationSubject(KIND, str(row.id), excerpt(row.content), url)
