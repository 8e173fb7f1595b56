"""Social's part of notifications: likes, follows, comments, replies, mentions and moderation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence, Set
from math import inf
from typing import Any, Final

from plaza.core.events import Event
from plaza.core.mentions import mentions_in
from plaza.core.notification_source import (
    EVERYONE_TOLD,
    MAX_ACTORS,
    Absence,
    Activity,
    GroupName,
    LatestActors,
    NotificationSource,
    NotificationSubject,
    excerpt,
)
from plaza.core.number_parsing import parse_int
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sequences import chunks
from plaza.core.valkey import Valkey, scan_pages
from plaza.social.events import (
    CommentCreated,
    CommentDeleted,
    CommentEdited,
    PostBanned,
    PostCreated,
    PostDeleted,
    PostEdited,
    PostLiked,
    PostUnbanned,
    PostUnliked,
    UserFollowed,
    UserRenamed,
    UserSuspended,
    UserUnfollowed,
    UserUnsuspended,
)
from plaza.social.keys import (
    CATALOGUE,
    COMMENT,
    POST,
    POST_COMMENTS_RECENT,
    POST_LIKES_RECENT,
    USER,
    USER_COMMENTS,
    USER_FOLLOWERS_RECENT,
    USER_POSTS,
)
from plaza.social.notification_texts import TextActivities
from plaza.social.notification_times import ActivityTimes, post_of, split_subject
from plaza.social.users import Users

USER_SUBJECT: Final = "user"  # the recipient


class SocialNotifications(NotificationSource):
    """Activities about posts, comments and users."""

    stream: Final = "social"
    kinds: Final = ("post", "comment", USER_SUBJECT)
    events: Final = (
        PostCreated,
        PostEdited,
        PostDeleted,
        PostBanned,
        PostUnbanned,
        PostLiked,
        PostUnliked,
        CommentCreated,
        CommentEdited,
        CommentDeleted,
        UserFollowed,
        UserUnfollowed,
        UserSuspended,
        UserUnsuspended,
        UserRenamed,
    )

    def __init__(self, valkey: Valkey, users: Users) -> None:
        self._valkey = valkey
        self._users = users
        self._times = ActivityTimes(valkey, users)
        self._texts = TextActivities(valkey, users)

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return what events may have begun or ended. A few round trips for a batch."""
        authors = await self._current_authors(events)
        found: list[Activity] = []
        commented: list[Event] = []
        for event in events:
            data, renamed = event.data, event.origin == "rename"
            if event.type in (PostLiked.type, PostUnliked.type):
                group = GroupName(authors[data["post"]] or data["author"], "like", f"post:{data['post']}")
                found.append(Activity(group, data["username"], event.time, renamed=renamed))
            elif event.type in (UserFollowed.type, UserUnfollowed.type):
                group = GroupName(data["followed"], "follow", USER_SUBJECT)
                found.append(Activity(group, data["follower"], event.time, renamed=renamed))
            elif event.type in (CommentCreated.type, CommentEdited.type, CommentDeleted.type):
                commented.append(event)
            elif event.type in (PostCreated.type, PostEdited.type):
                found += await self._texts.of_post(data["post"], edited=event.type == PostEdited.type)
            elif event.type in (PostBanned.type, PostUnbanned.type, UserSuspended.type, UserUnsuspended.type):
                found += await self._moderation(event, data)
        return [*found, *await self._texts.of_comments([_comment_row(event) for event in commented])]

    async def ended(self, events: Sequence[Event]) -> list[GroupName]:
        """Return the groups about and below posts that are deleted or banned now, and about deleted comments."""
        posts = list({event.data["post"] for event in events if event.type in (PostDeleted.type, PostBanned.type)})
        states = await self._valkey.batch([("HMGET", POST(post), "user_id", "banned") for post in posts])
        known = dict(zip(posts, states, strict=True))
        groups: list[GroupName] = []
        for event in events:
            data = event.data
            if event.type in (PostDeleted.type, PostBanned.type):
                author, banned = known[data["post"]]
                subject, types = f"post:{data['post']}", []
                if author is None or banned:
                    types += ["like", "comment"]
                    groups += [GroupName(EVERYONE_TOLD, "", root) for root in (subject, f"comment:{data['post']}")]
                types += ["moderation"] if author is None else []
                groups += [GroupName(author or data["author"], type, subject) for type in types]
            elif event.type == CommentDeleted.type:
                groups.append(GroupName(EVERYONE_TOLD, "", f"comment:{data['post']}:{data['comment']}"))
        return groups

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        return await self._times.read(activities)

    async def latest(
        self, group: GroupName, since_ms: int, until_ms: int | None, uncounted: Set[str]
    ) -> LatestActors | None:
        """Return the latest likes or followers. One round trip."""
        if group.type not in ("like", "follow"):
            return None
        key = USER_FOLLOWERS_RECENT(group.recipient)
        if group.type == "like":
            key = POST_LIKES_RECENT(post_of(group.subject))
        end = "+inf" if until_ms is None else f"({until_ms}"
        rows, total, times = await self._valkey.batch(
            [
                ("ZRANGE", key, end, since_ms, "BYSCORE", "REV", "LIMIT", 0, MAX_ACTORS, "WITHSCORES"),
                ("ZCOUNT", key, since_ms, end),
                ("ZMSCORE", key, *uncounted),
            ]
        )
        left_out = [at for at in times if at is not None and since_ms <= at < (until_ms or inf)]
        return LatestActors([(name, int(at)) for name, at in rows], total - len(left_out))

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> list[NotificationSubject | Absence]:
        """Return posts and comments with the beginning of their texts. One round trip."""
        commands: list[tuple[str, ...]] = []
        for _, subject in subjects:
            kind, *ids = split_subject(subject)
            commands.append(("HMGET", POST(ids[0] if ids else "-"), "user_id", "banned", "content"))
            commands.append(("HMGET", COMMENT(ids[-1] if kind == "comment" else "-"), "username", "content"))
        replies = await self._valkey.batch(commands)
        rows = zip(subjects, replies[::2], replies[1::2], strict=True)
        return [_described(recipient, type, subject, post, comment) for (type, subject), post, comment in rows]

    async def activities_by(self, username: str) -> list[Activity]:
        """Return what a user's latest posts and comments may tell. Likes and follows have events of the renaming."""
        ids, posts = await self._valkey.batch(
            [("ZRANGE", key(username), 0, MAX_ACTORS - 1, "REV") for key in (USER_COMMENTS, USER_POSTS)]
        )
        commented = await self._valkey.batch([("HGET", COMMENT(id), "post_id") for id in ids])
        rows = [{"comment": id, "post": post, "author": ""} for id, post in zip(ids, commented, strict=True) if post]
        found = await self._texts.of_comments(rows)
        texts = await self._valkey.batch([("HGET", POST(post), "content") for post in posts])
        for post, text in zip(posts, texts, strict=True):
            found += await self._texts.of_post(post) if mentions_in(text or "") else []
        return found

    async def roots_of(self, username: str) -> list[str]:
        """Return a user's latest posts, as roots of the comments on them."""
        posts = await self._valkey.call("ZRANGE", USER_POSTS(username), 0, MAX_ACTORS - 1, "REV")
        return [f"comment:{post}" for post in posts]

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield what was done to each user and each of the user's posts since a time."""
        for node in self._valkey.primaries():
            async for page in scan_pages(node, "SCAN", match=USER("*"), count=SCAN_BATCH, type="hash"):
                matches = [CATALOGUE.match(key) for key in page]
                for name in [match.parts[0] for match in matches if match is not None and match.key is USER]:
                    yield await self._follows_of(name, since_ms)
                    for posts in chunks(await self._valkey.call("ZRANGE", USER_POSTS(name), 0, -1), SCAN_BATCH):
                        yield await self._activities_about(name, posts, since_ms)

    async def _follows_of(self, name: str, since_ms: int) -> list[Activity]:
        followers = await self._valkey.call("ZRANGE", USER_FOLLOWERS_RECENT(name), since_ms, "+inf", "BYSCORE")
        own = [Activity(GroupName(name, "follow", USER_SUBJECT), follower) for follower in followers]
        return [*own, Activity(GroupName(name, "moderation", USER_SUBJECT), "@suspended")]

    async def _activities_about(self, author: str, posts: Sequence[str], since_ms: int) -> list[Activity]:
        """Return likes, comments, mentions and bans of posts since a time."""
        found: list[Activity] = []
        for post in posts:
            group = GroupName(author, "like", f"post:{post}")
            span = ("+inf", since_ms, "BYSCORE", "REV", "LIMIT", 0, MAX_ACTORS)
            likes, comments, (created, edited, banned_at) = await self._valkey.batch(
                [
                    ("ZRANGE", POST_LIKES_RECENT(post), *span),
                    ("ZRANGE", POST_COMMENTS_RECENT(post), *span),
                    ("HMGET", POST(post), "created_at", "edited_at", "banned_at"),
                ]
            )
            found += [Activity(group, name) for name in likes]
            found += await self._texts.of_comments([{"post": post, "author": author, "comment": id} for id in comments])
            if max(parse_int(created), parse_int(edited)) >= since_ms:
                found += await self._texts.of_post(post)
            if banned_at is not None and parse_int(banned_at) >= since_ms:
                found.append(Activity(GroupName(author, "moderation", f"post:{post}"), "@banned"))
        return found

    async def _current_authors(self, events: Sequence[Event]) -> dict[str, str | None]:
        """Return the authors of liked posts now: one may have been renamed since the event."""
        posts = list({event.data["post"] for event in events if event.type in (PostLiked.type, PostUnliked.type)})
        authors = await self._valkey.batch([("HGET", POST(post), "user_id") for post in posts])
        return dict(zip(posts, authors, strict=True))

    async def _moderation(self, event: Event, data: dict[str, Any]) -> list[Activity]:
        if event.type.startswith("user."):
            group, names = GroupName(data["username"], "moderation", USER_SUBJECT), ("@suspended", "@unsuspended")
            return [Activity(group, name, event.time) for name in names]
        post = data["post"]
        author = await self._valkey.call("HGET", POST(post), "user_id") or data["author"]
        group = GroupName(author, "moderation", f"post:{post}")
        found = [Activity(group, name, event.time) for name in ("@banned", "@unbanned")]
        if event.type == PostUnbanned.type:  # what the ban has removed comes back
            found += await self._activities_about(author, [post], 0)
        return found


def _comment_row(event: Event) -> dict[str, Any]:
    return event.data | {"time": event.time, "edited": event.type == CommentEdited.type}


def _described(
    recipient: str, type: str, subject: str, post: Sequence[str | None], comment: Sequence[str | None]
) -> NotificationSubject | Absence:
    kind, *ids = split_subject(subject)
    author, banned, text = post
    if kind == USER_SUBJECT:
        return NotificationSubject(kind, recipient, "", f"/app/people/{recipient}")
    if author is None or (kind == "comment" and comment[0] is None):
        return Absence.GONE
    if type == "moderation":
        return NotificationSubject(kind, ids[0], excerpt(text), "" if banned else f"/app/posts/{ids[0]}")
    if banned:
        return Absence.HIDDEN
    if kind == "comment":
        return NotificationSubject(kind, ids[1], excerpt(comment[1]), f"/app/posts/{ids[0]}?thread={ids[1]}")
    return NotificationSubject(kind, ids[0], excerpt(text), f"/app/posts/{ids[0]}")
