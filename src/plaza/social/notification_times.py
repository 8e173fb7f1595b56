"""When activities of social happened, by source data: a like stands while the post's likes have it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from plaza.core.latest_comments import CommentSearch, latest_comments
from plaza.core.mentions import mentions_in
from plaza.core.notification_source import Activity
from plaza.core.number_parsing import parse_int
from plaza.core.valkey import Valkey
from plaza.social.keys import (
    AUTH_USER,
    COMMENT,
    POST,
    POST_COMMENT_REPLIES,
    POST_COMMENTS_RECENT,
    POST_LIKES,
    POST_LIKES_RECENT,
    USER_COMMENTS,
    USER_FOLLOWING,
    USER_FOLLOWING_RECENT,
)
from plaza.social.users import Users

Times = Sequence[int | None]


def split_subject(subject: str) -> tuple[str, ...]:
    """Return the kind and the ids of a subject."""
    return tuple(subject.split(":"))


def post_of(subject: str) -> str:
    return split_subject(subject)[1]


class ActivityTimes:
    """Reads when activities happened. Each type takes one or two round trips for any number of activities."""

    def __init__(self, valkey: Valkey, users: Users) -> None:
        self._valkey = valkey
        self._users = users
        self._readers: Mapping[str, Callable[[Sequence[Activity]], Awaitable[Times]]] = {
            "like": self._likes,
            "follow": self._follows,
            "comment": self._comments,
            "reply": self._replies,
            "mention": self._mentions,
            "moderation": self._moderation,
        }

    async def read(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return the times, None for activities that do not stand."""
        times: list[int | None] = [None] * len(activities)
        for type, read in self._readers.items():
            indexes = [index for index, activity in enumerate(activities) if activity.group.type == type]
            if indexes:
                found = await read([activities[index] for index in indexes])
                for index, at in zip(indexes, found, strict=True):
                    times[index] = at
        return times

    async def _likes(self, activities: Sequence[Activity]) -> Times:
        """Read all likes of a post together: a hot post has hundreds in a batch."""
        by_post: dict[str, dict[str, None]] = {}
        for one in activities:
            by_post.setdefault(post_of(one.group.subject), {})[one.actor] = None
        replies = await self._valkey.batch(
            [
                command
                for post, names in by_post.items()
                for command in (
                    ("HMGET", POST(post), "user_id", "banned"),
                    ("SMISMEMBER", POST_LIKES(post), *names),
                    ("ZMSCORE", POST_LIKES_RECENT(post), *names),
                )
            ]
        )
        found: dict[tuple[str, str, str], float | None] = {}
        for index, (post, names) in enumerate(by_post.items()):
            (author, banned), likes, scores = replies[3 * index : 3 * index + 3]
            for name, likes_it, score in zip(names, likes, scores, strict=True):
                if likes_it and not banned:
                    found[author or "", post, name] = score
        return [
            _time(found[key], one.at_ms)
            if (key := (one.group.recipient, post_of(one.group.subject), one.actor)) in found
            else None
            for one in activities
        ]

    async def _follows(self, activities: Sequence[Activity]) -> Times:
        commands = []
        for one in activities:
            commands.append(("SISMEMBER", USER_FOLLOWING(one.actor), one.group.recipient))
            commands.append(("ZSCORE", USER_FOLLOWING_RECENT(one.actor), one.group.recipient))
        replies = await self._valkey.batch(commands)
        rows = zip(activities, replies[::2], replies[1::2], strict=True)
        return [_time(score, one.at_ms) if follows else None for one, follows, score in rows]

    async def _comments(self, activities: Sequence[Activity]) -> Times:
        """The actor's latest comment on the post."""
        posts = [post_of(one.group.subject) for one in activities]
        owners = await self._owners(posts)
        times = await self._latest_comments(activities, [POST_COMMENTS_RECENT(post) for post in posts])
        rows = zip(activities, owners, times, strict=True)
        return [at if owner == one.group.recipient else None for one, owner, at in rows]

    async def _replies(self, activities: Sequence[Activity]) -> Times:
        """The actor's latest reply to the comment. The post's author is told of comments instead."""
        subjects = [split_subject(one.group.subject) for one in activities]
        owners = await self._owners([post for _, post, _ in subjects])
        authors = await self._valkey.batch([("HGET", COMMENT(comment), "username") for _, _, comment in subjects])
        keys = [POST_COMMENT_REPLIES(post, comment) for _, post, comment in subjects]
        times = await self._latest_comments(activities, keys)
        rows = zip(activities, owners, authors, times, strict=True)
        return [
            at if author == one.group.recipient and owner not in (None, author) else None
            for one, owner, author, at in rows
        ]

    async def _mentions(self, activities: Sequence[Activity]) -> Times:
        """The creation of the text. An edit that adds a mention does not make the text newer."""
        texts = [await self._mentioning_text(one) for one in activities]
        names = {name for text in texts if text is not None for name in mentions_in(text["content"] or "")}
        current = await self._users.current_names(sorted(names)) if names else {}
        times: list[int | None] = []
        for one, text in zip(activities, texts, strict=True):
            mentioned = {current.get(name) for name in mentions_in(text["content"] or "")} if text else set()
            is_told = text is not None and one.group.recipient in mentioned - text["told"]
            times.append(parse_int(text["created_at"]) if text is not None and is_told else None)
        return times

    async def _mentioning_text(self, activity: Activity) -> dict[str, Any] | None:
        """Return a text of the actor that can be seen, and who is told of it as a comment or a reply."""
        kind, post, *rest = split_subject(activity.group.subject)
        author, banned, content, created = await self._valkey.call(
            "HMGET", POST(post), "user_id", "banned", "content", "created_at"
        )
        told: set[str | None] = set()
        if kind == "comment":
            author_of_post = author
            author, content, created, parent = await self._valkey.call(
                "HMGET", COMMENT(rest[0]), "username", "content", "created_at", "reply_to"
            )
            told = {author_of_post, await self._valkey.call("HGET", COMMENT(parent), "username") if parent else None}
        if banned or author != activity.actor:
            return None
        return {"content": content, "created_at": created, "told": told}

    async def _moderation(self, activities: Sequence[Activity]) -> Times:
        commands = [
            ("HMGET", POST(post_of(one.group.subject)), "user_id", "banned", "banned_at")
            if one.group.subject.startswith("post:")
            else ("HMGET", AUTH_USER(one.group.recipient), "suspended_at", "suspended_at", "suspended_at")
            for one in activities
        ]
        rows = zip(activities, await self._valkey.batch(commands), strict=True)
        return [_moderation_time(one, *reply) for one, reply in rows]

    async def _owners(self, posts: Sequence[str]) -> list[str | None]:
        """Return the authors of posts; None for one that is banned or deleted."""
        rows = await self._valkey.batch([("HMGET", POST(post), "user_id", "banned") for post in posts])
        return [None if banned else author for author, banned in rows]

    async def _latest_comments(self, activities: Sequence[Activity], keys: Sequence[str]) -> list[int | None]:
        """Return when each actor last wrote one of the comments in a sorted set."""
        return await latest_comments(
            self._valkey,
            [CommentSearch(USER_COMMENTS(one.actor), key, one.ref) for one, key in zip(activities, keys, strict=True)],
        )


def _time(score: float | None, event_ms: int) -> int:
    """Return the time of the source data; if it has none, because another service wrote it, the event's."""
    return parse_int(score, event_ms)


def _moderation_time(one: Activity, first: str | None, is_on: str | None, since: str | None) -> int | None:
    if one.group.subject.startswith("post:") and first != one.group.recipient:
        return None
    if one.actor in ("@banned", "@suspended"):
        return parse_int(since, one.at_ms) if is_on else None
    return None if is_on else one.at_ms
