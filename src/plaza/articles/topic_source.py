"""What articles tell open pages: votes and comments that change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from plaza.articles.events import ArticleCommentDeleted, ArticleCommented, ArticleDeleted, ArticleVoted
from plaza.articles.keys import ARTICLE, ARTICLE_COMMENTS
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.events import Event
from plaza.core.number_parsing import parse_int
from plaza.core.topics import TopicMessage, WatchedTopics, spread_ms

PREFIX: Final = "article:"


class ArticleTopics:
    """The topic `article:<id>`."""

    kinds = (PREFIX,)
    event_types = (ArticleVoted.type, ArticleCommented.type, ArticleCommentDeleted.type, ArticleDeleted.type)

    def __init__(self, articles: Articles) -> None:
        self._valkey = articles.valkey

    def listen(self, note: Callable[[str], None]) -> None:
        """Events tell all changes."""

    def changes(self, event: Event, watched: WatchedTopics) -> Iterable[str]:
        topic = f"{PREFIX}{event.data['article']}"
        return [topic] if watched.listeners(topic) else []

    async def resolve(self, viewer: Actor | None, names: Sequence[str]) -> list[str]:
        """Articles are public. No round trip."""
        return [name for name in names if name.removeprefix(PREFIX).isdecimal()]

    async def current(self, viewer: Actor | None, topics: Sequence[str], since_ms: int) -> list[TopicMessage]:
        """One round trip."""
        return await self._count_messages(topics, None)

    async def messages(self, changes: Sequence[str], watched: WatchedTopics) -> list[TopicMessage]:
        """One round trip."""
        return await self._count_messages(changes, watched)

    async def _count_messages(self, topics: Sequence[str], watched: WatchedTopics | None) -> list[TopicMessage]:
        ids = [int(topic.removeprefix(PREFIX)) for topic in topics]
        hashes = [("HMGET", ARTICLE(id), "author", "votes") for id in ids]
        sizes = [("ZCARD", ARTICLE_COMMENTS(id)) for id in ids]
        replies = await self._valkey.batch([*hashes, *sizes], return_errors=True)
        rows = zip(topics, replies[: len(ids)], replies[len(ids) :], strict=True)
        return [_count_message(topic, row, comments, watched) for topic, row, comments in rows]


def _count_message(topic: str, row: Any, comments: Any, watched: WatchedTopics | None) -> TopicMessage:
    # A key of a wrong type counts as missing.
    author, votes = (None, None) if isinstance(row, Exception) else row
    if isinstance(comments, Exception):
        comments = 0
    counts: dict[str, Any] = {"topic": topic}
    if author is None and votes is None:
        counts["gone"] = True
    else:
        counts |= {"votes": parse_int(votes), "comments": comments, "spread_ms": spread_ms(watched, topic)}
    return TopicMessage(topic, [((author or "").removeprefix("user:"), counts)], lambda entries: entries[0])
