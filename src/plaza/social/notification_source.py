"""Social's part of notifications: likes, follows, comments, replies, mentions and moderation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from plaza.core.events import Event
from plaza.core.mentions import mentions_in
from plaza.core.notification_source import (
    MAX_ACTORS,
    Absence,
    Activity,
    GroupName,
    LatestActors,
    NotificationSubject,
    excerpt,
)
from plaza.core.number_parsing import parse_int
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sequences import chunks
from plaza.core.valkey import Valkey, scan_pages
from plaza.social.keys import (
    CATALOGUE,
    COMMENT,
    POST,
    POST_COMMENTS_RECENT,
    POST_EDITS,
    POST_LIKES_RECENT,
    USER,
    USER_BLOCKED,
    USER_BLOCKED_BY,
    USER_COMMENTS,
    USER_FOLLOWERS_RECENT,
    USER_POSTS,
)
from plaza.social.notification_times import ActivityTimes, post_of, split_subject
from plaza.social.users import Users

USER_SUBJECT: Final = "user"  # the recipient
# Edits between two reads of a post's events.
MAX_EDITS: Final = 10
# Blocks that are read together with the posts.
MAX_BLOCKS: Final = 1_000

# On a cluster the text of a comment is stored right after its event. Another service may never store it.
TEXT_WAIT_SECONDS: Final = (0.05, 0.2, 0.5, 0.0)


class SocialNotifications:
    """Activities about posts, comments and users."""

    stream: Final = "social"
    kinds: Final = ("post", "comment", USER_SUBJECT)
    event_types: Final = (
        "post.*",
        "comment.*",
        "user.followed",
        "user.unfollowed",
        "user.suspended",
        "user.unsuspended",
        "user.renamed",
    )

    def __init__(self, valkey: Valkey, users: Users) -> None:
        self._valkey = valkey
        self._users = users
        self._times = ActivityTimes(valkey, users)

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return what events may have begun or ended. A few round trips for a batch."""
        authors = await self._current_authors(events)
        found: list[Activity] = []
        commented: list[tuple[Event, dict[str, Any]]] = []
        for event in events:
            data, renamed = event.data, event.origin == "rename"
            if event.type in ("post.liked", "post.unliked"):
                group = GroupName(authors[data["post"]] or data["author"], "like", f"post:{data['post']}")
                found.append(Activity(group, data["username"], event.time, renamed=renamed))
            elif event.type in ("user.followed", "user.unfollowed"):
                group = GroupName(data["followed"], "follow", USER_SUBJECT)
                found.append(Activity(group, data["follower"], event.time, renamed=renamed))
            elif event.type in ("comment.created", "comment.deleted"):
                commented.append((event, data))
            elif event.type in ("post.created", "post.edited"):
                found += await self._mentions_in_post(data["post"])
            elif event.type in ("post.banned", "post.unbanned", "user.suspended", "user.unsuspended"):
                found += await self._moderation(event, data)
        return [*found, *await self._comments([data | {"time": event.time} for event, data in commented])]

    async def ended(self, events: Sequence[Event]) -> list[GroupName]:
        """Return the groups about posts that are deleted or banned now, and about deleted comments."""
        posts = list({event.data["post"] for event in events if event.type in ("post.deleted", "post.banned")})
        states = await self._valkey.batch([("HMGET", POST(post), "user_id", "banned") for post in posts])
        known = dict(zip(posts, states, strict=True))
        groups: list[GroupName] = []
        for event in events:
            data = event.data
            if event.type in ("post.deleted", "post.banned"):
                author, banned = known[data["post"]]
                types = ["like", "comment"] if author is None or banned else []
                types += ["moderation"] if author is None else []
                groups += [GroupName(author or data["author"], type, f"post:{data['post']}") for type in types]
            elif event.type == "comment.deleted" and data.get("username"):
                groups.append(GroupName(data["username"], "reply", f"comment:{data['post']}:{data['comment']}"))
        return groups

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        return await self._times.read(activities)

    async def latest(self, group: GroupName, since_ms: int, until_ms: int | None) -> LatestActors | None:
        """Return the latest likes or followers. One round trip."""
        if group.type not in ("like", "follow"):
            return None
        key = USER_FOLLOWERS_RECENT(group.recipient)
        if group.type == "like":
            key = POST_LIKES_RECENT(post_of(group.subject))
        end = "+inf" if until_ms is None else f"({until_ms}"
        rows, total = await self._valkey.batch(
            [
                ("ZRANGE", key, end, since_ms, "BYSCORE", "REV", "LIMIT", 0, MAX_ACTORS, "WITHSCORES"),
                ("ZCOUNT", key, since_ms, end),
            ]
        )
        return LatestActors([(name, int(at)) for name, at in rows], total)

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> list[NotificationSubject | Absence]:
        """Return posts and comments with the beginning of their texts. One round trip.

        A block between the recipient and the author of a post hides what is below the post.
        """
        commands: list[tuple[str, ...]] = []
        for _, subject in subjects:
            kind, *ids = split_subject(subject)
            commands.append(("HMGET", POST(ids[0] if ids else "-"), "user_id", "banned", "content"))
            commands.append(("HMGET", COMMENT(ids[-1] if kind == "comment" else "-"), "username", "content"))
        keys = (USER_BLOCKED(recipient), USER_BLOCKED_BY(recipient))
        *replies, blocked, blocked_by = await self._valkey.batch(
            [*commands, *(("ZRANGE", key, 0, MAX_BLOCKS - 1) for key in keys)]
        )
        hidden = {*blocked, *blocked_by}
        if max(len(blocked), len(blocked_by)) >= MAX_BLOCKS:
            authors = {post[0] for post in replies[::2] if post[0]}
            hidden = await self._users.blocked_either_way(recipient, sorted(authors))
        rows = zip(subjects, replies[::2], replies[1::2], strict=True)
        return [
            Absence.HIDDEN if post[0] in hidden else _described(recipient, type, subject, post, comment)
            for (type, subject), post, comment in rows
        ]

    async def activities_by(self, username: str) -> list[Activity]:
        """Return what a user's latest posts and comments may tell. Likes and follows have events of the renaming."""
        ids, posts = await self._valkey.batch(
            [("ZRANGE", key(username), 0, MAX_ACTORS - 1, "REV") for key in (USER_COMMENTS, USER_POSTS)]
        )
        commented = await self._valkey.batch([("HGET", COMMENT(id), "post_id") for id in ids])
        rows = [{"comment": id, "post": post, "author": ""} for id, post in zip(ids, commented, strict=True) if post]
        found = [one for one in await self._comments(rows) if one.group.recipient]
        texts = await self._valkey.batch([("HGET", POST(post), "content") for post in posts])
        for post, text in zip(posts, texts, strict=True):
            found += await self._mentions_in_post(post) if mentions_in(text or "") else []
        return found

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
            likes, comments, (created, banned_at) = await self._valkey.batch(
                [
                    ("ZRANGE", POST_LIKES_RECENT(post), *span),
                    ("ZRANGE", POST_COMMENTS_RECENT(post), *span),
                    ("HMGET", POST(post), "created_at", "banned_at"),
                ]
            )
            found += [Activity(group, name) for name in likes]
            found += await self._comments([{"post": post, "author": author, "comment": id} for id in comments])
            if parse_int(created) >= since_ms:
                found += await self._mentions_in_post(post)
            if banned_at is not None and parse_int(banned_at) >= since_ms:
                found.append(Activity(GroupName(author, "moderation", f"post:{post}"), "@banned"))
        return found

    async def _current_authors(self, events: Sequence[Event]) -> dict[str, str | None]:
        """Return the authors of liked posts now: one may have been renamed since the event."""
        posts = list({event.data["post"] for event in events if event.type in ("post.liked", "post.unliked")})
        authors = await self._valkey.batch([("HGET", POST(post), "user_id") for post in posts])
        return dict(zip(posts, authors, strict=True))

    async def _comments(self, rows: Sequence[dict[str, Any]]) -> list[Activity]:
        """Return who may be told of comments: the post's author, the user replied to, the users mentioned.

        `rows` are data of events. What another service deletes has no `username`.
        """
        stored = await self._stored_comments(rows)
        authors = await self._valkey.batch([("HGET", POST(row["post"]), "user_id") for row in rows])
        parents = [row.get("reply_to") or found[2] for row, found in zip(rows, stored, strict=True)]
        replied_to = await self._valkey.batch([("HGET", COMMENT(parent or "-"), "username") for parent in parents])
        texts = [found[1] or "" for found in stored]
        names = await self._users.current_names(sorted({name for text in texts for name in mentions_in(text)}) or ["-"])
        found: list[Activity] = []
        for row, (written_by, _, _), author, parent, other, text in zip(
            rows, stored, authors, parents, replied_to, texts, strict=True
        ):
            actor = written_by or row.get("username")
            if not actor:
                continue
            comment = row["comment"]

            def add(recipient: str, type: str, subject: str, *, of: dict[str, Any] = row, by: str = actor) -> None:
                group = GroupName(recipient, type, subject)
                found.append(Activity(group, by, of.get("time", 0), of["comment"]))

            add(author or row["author"], "comment", f"post:{row['post']}")
            if other:
                add(other, "reply", f"comment:{row['post']}:{parent}")
            for name in {names[name] for name in mentions_in(text) if name in names}:
                add(name, "mention", f"comment:{row['post']}:{comment}")
        return found

    async def _stored_comments(self, rows: Sequence[Mapping[str, Any]]) -> list[list[str | None]]:
        """Return author, text and parent of comments. The text of a new one may follow its event, so wait for it."""
        hashes = [("HMGET", COMMENT(row["comment"]), "username", "content", "reply_to") for row in rows]
        listed = [("ZSCORE", POST_COMMENTS_RECENT(row["post"]), row["comment"]) for row in rows]
        for seconds in TEXT_WAIT_SECONDS:
            replies = await self._valkey.batch([*hashes, *listed])
            stored, times = replies[: len(rows)], replies[len(rows) :]
            if not any(text[0] is None and at is not None for text, at in zip(stored, times, strict=True)):
                break
            await asyncio.sleep(seconds)
        return stored

    async def _mentions_in_post(self, post: str) -> list[Activity]:
        """Return the users that a post mentions, or mentioned before its latest edits."""
        (author, content), edits = await self._valkey.batch(
            [("HMGET", POST(post), "user_id", "content"), ("LRANGE", POST_EDITS(post), -MAX_EDITS, -1)]
        )
        if author is None:
            return []
        texts = [content or "", *(_old_text(edit) for edit in edits)]
        names = [name for text in texts for name in mentions_in(text)]
        current = await self._users.current_names(names) if names else {}
        return [
            Activity(GroupName(name, "mention", f"post:{post}"), author) for name in dict.fromkeys(current.values())
        ]

    async def _moderation(self, event: Event, data: dict[str, Any]) -> list[Activity]:
        if event.type.startswith("user."):
            group, names = GroupName(data["username"], "moderation", USER_SUBJECT), ("@suspended", "@unsuspended")
            return [Activity(group, name, event.time) for name in names]
        post = data["post"]
        author = await self._valkey.call("HGET", POST(post), "user_id") or data["author"]
        group = GroupName(author, "moderation", f"post:{post}")
        found = [Activity(group, name, event.time) for name in ("@banned", "@unbanned")]
        if event.type == "post.unbanned":  # what the ban has removed comes back
            found += await self._activities_about(author, [post], 0)
        return found


def _old_text(edit: str) -> str:
    try:
        decoded = msgspec.json.decode(edit)
    except msgspec.DecodeError:
        return ""
    return str(decoded.get("content") or "") if isinstance(decoded, dict) else ""


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
