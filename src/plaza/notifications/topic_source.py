"""What notifications tell open pages: the number of unread ones, for the bell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from plaza.core.auth import Actor
from plaza.core.events import Event
from plaza.core.topics import TopicMessage, WatchedTopics
from plaza.notifications.unread_counts import UnreadCounts

KIND: Final = "notifications"


class UnreadTopic:
    """The topic `notifications` of a user."""

    kinds = (KIND,)
    event_types = ()

    def __init__(self, counts: UnreadCounts) -> None:
        self._counts = counts

    def listen(self, note: Callable[[str], None]) -> None:
        """Counts change when Valkey says so."""
        self._counts.on_change(lambda username: note(f"{KIND}:{username}"))

    def changes(self, event: Event, watched: WatchedTopics) -> Iterable[str]:
        return []

    async def resolve(self, viewer: Actor | None, names: Sequence[str]) -> list[str]:
        """No round trip."""
        return [f"{KIND}:{viewer.name}" for name in names if viewer is not None and name == KIND]

    async def current(self, viewer: Actor | None, topics: Sequence[str], since_ms: int) -> list[TopicMessage]:
        """No round trip for each count that is cached, else one."""
        return [await self._message(topic) for topic in topics]

    async def messages(self, changes: Sequence[str], watched: WatchedTopics) -> list[TopicMessage]:
        """One round trip for each user who is watching."""
        return [await self._message(topic) for topic in changes if watched.listeners(topic)]

    async def _message(self, topic: str) -> TopicMessage:
        unread: dict[str, Any] = {"topic": KIND, "unread": await self._counts.get(topic.partition(":")[2])}
        return TopicMessage(topic, [("", unread)], lambda entries: entries[0])
