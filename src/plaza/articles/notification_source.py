"""The articles' part of notifications: comments on articles, replies to them, and mentions in them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from plaza.articles.comments import split_id
from plaza.articles.events import ArticleCommentDeleted, ArticleCommented, ArticleCommentEdited, ArticleDeleted
from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_COMMENT,
    ARTICLE_COMMENT_PARENTS,
    ARTICLE_COMMENT_REPLIES,
    ARTICLE_COMMENTS,
    ARTICLES_BY_TIME,
    USER_ARTICLE_COMMENTS,
)
from plaza.core.events import Event
from plaza.core.latest_comments import CommentSearch, latest_comments
from plaza.core.notification_source import (
    EVERYONE_TOLD,
    MAX_ACTORS,
    Absence,
    Activity,
    GroupName,
    NotificationSource,
    NotificationSubject,
    Recipients,
    excerpt,
    mentioned_users,
)
from plaza.core.search_source import keys_in_sorted_set
from plaza.core.valkey import Valkey


class ArticleNotifications(NotificationSource):
    """Activities about articles and comments on them."""

    stream: Final = "articles"
    kinds: Final = ("article", "article_comment")
    events: Final = (ArticleCommented, ArticleCommentEdited, ArticleCommentDeleted, ArticleDeleted)

    def __init__(self, valkey: Valkey, recipients: Recipients | None) -> None:
        self._valkey = valkey
        self._recipients = recipients

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return the users that comments may be told to. Two round trips for each comment, three with mentions."""
        found: list[Activity] = []
        for event in events:
            if event.type != ArticleDeleted.type:
                edited = event.type == ArticleCommentEdited.type
                found += await self._told_of(event.data, event.time, edited=edited)
        return found

    async def ended(self, events: Sequence[Event]) -> list[GroupName]:
        """Return the groups about and below deleted articles, and about deleted comments."""
        groups: list[GroupName] = []
        for event in events:
            data = event.data
            if event.type == ArticleDeleted.type:
                groups.append(GroupName(data["author"], "article_comment", f"article:{data['article']}"))
                groups.append(GroupName(EVERYONE_TOLD, "", f"article_comment:{data['article']}"))
            elif event.type == ArticleCommentDeleted.type:
                groups.append(GroupName(EVERYONE_TOLD, "", _comment_subject(data["comment"])))
        return groups

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return the actor's latest comment or reply; of a mention, the comment. A few round trips for each."""
        return [await self._time(one) for one in activities]

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> list[NotificationSubject | Absence]:
        """Return articles by their titles, and comments with the beginning of their texts. One round trip."""
        parts = [subject.split(":") for _, subject in subjects]
        rows = await self._valkey.batch(
            [
                ("HMGET", ARTICLE(ids[0]), "title", "title")
                if kind == "article"
                else ("HMGET", ARTICLE_COMMENT(*ids), "username", "content")
                for kind, *ids in parts
            ]
        )
        return [_described(kind, ids, *row) for (kind, *ids), row in zip(parts, rows, strict=True)]

    async def activities_by(self, username: str) -> list[Activity]:
        """Return what a user's latest comments may tell."""
        ids = await self._valkey.call("ZRANGE", USER_ARTICLE_COMMENTS(username), 0, MAX_ACTORS - 1, "REV")
        return [one for id in ids for one in await self._told_of({"comment": id, "username": username}, 0)]

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield what was commented since a time, article by article."""
        async for members in keys_in_sorted_set(self._valkey, ARTICLES_BY_TIME(), ""):
            ids = [member.removeprefix("article:") for member in members]
            notes = await self._valkey.batch(
                [("ZRANGE", ARTICLE_COMMENTS(id), since_ms, "+inf", "BYSCORE") for id in ids]
            )
            for id, found in zip(ids, notes, strict=True):
                for note in found:
                    yield await self._told_of({"comment": f"{id}-{note}"}, 0)

    async def _told_of(self, data: Mapping[str, Any], at_ms: int, *, edited: bool = False) -> list[Activity]:
        """Return who may be told of a comment: the article's author, the user replied to, the users mentioned.

        Of an edited one, also those who were told.
        """
        article, note = split_id(data["comment"])
        author, (written_by, text), parent = await self._valkey.batch(
            [
                ("HGET", ARTICLE(article), "author"),
                ("HMGET", ARTICLE_COMMENT(article, note), "username", "content"),
                ("HGET", ARTICLE_COMMENT_PARENTS(article), note),
            ]
        )
        actor = written_by or data.get("username")
        if author is None or not actor:
            return []
        if data.get("reply_to"):
            parent = split_id(data["reply_to"])[1]
        groups = [GroupName(_username(author), "article_comment", f"article:{article}")]
        if parent:
            other = await self._valkey.call("HGET", ARTICLE_COMMENT(article, parent), "username")
            groups += [GroupName(other, "reply", f"article_comment:{article}:{parent}")] if other else []
        subject = _comment_subject(data["comment"])
        mentioned = await mentioned_users(text, self._recipients)
        groups += [GroupName(name, "mention", subject) for name in [*mentioned, *([EVERYONE_TOLD] if edited else [])]]
        return [Activity(group, actor, at_ms, note) for group in groups]

    async def _time(self, one: Activity) -> int | None:
        kind, article, *rest = one.group.subject.split(":")
        author = _username(await self._valkey.call("HGET", ARTICLE(article), "author") or "")
        if kind == "article":
            is_told, thread = author == one.group.recipient, ARTICLE_COMMENTS(article)
        elif one.group.type == "reply":
            other = await self._valkey.call("HGET", ARTICLE_COMMENT(article, rest[0]), "username")
            is_told = other == one.group.recipient and author not in ("", other)
            thread = ARTICLE_COMMENT_REPLIES(article, rest[0])
        else:
            return await self._mention_time(one, author, article, rest[0])
        if not is_told:
            return None
        search = CommentSearch(USER_ARTICLE_COMMENTS(one.actor), thread, one.ref, _note_in(article))
        return (await latest_comments(self._valkey, [search]))[0]

    async def _mention_time(self, one: Activity, author: str, article: str, note: str) -> int | None:
        (written_by, text), parent, created = await self._valkey.batch(
            [
                ("HMGET", ARTICLE_COMMENT(article, note), "username", "content"),
                ("HGET", ARTICLE_COMMENT_PARENTS(article), note),
                ("ZSCORE", ARTICLE_COMMENTS(article), note),
            ]
        )
        other = await self._valkey.call("HGET", ARTICLE_COMMENT(article, parent), "username") if parent else None
        if created is None or written_by != one.actor or one.group.recipient in (author, other):
            return None
        return int(created) if one.group.recipient in await mentioned_users(text, self._recipients) else None


def _note_in(article: str) -> Any:
    """Return how an article's thread names a comment: without the article's id."""
    prefix = f"{article}-"
    return lambda id: id.removeprefix(prefix) if id.startswith(prefix) else None


def _comment_subject(id: str) -> str:
    article, note = split_id(id)
    return f"article_comment:{article}:{note}"


def _username(author: str) -> str:
    return author.removeprefix("user:")


def _described(kind: str, ids: Sequence[str], first: str | None, text: str | None) -> NotificationSubject | Absence:
    if first is None:
        return Absence.GONE
    if kind == "article":
        return NotificationSubject(kind, ids[0], excerpt(text), f"/app/articles/{ids[0]}")
    id = "-".join(ids)
    return NotificationSubject(kind, id, excerpt(text), f"/app/articles/{ids[0]}?thread={id}")
