"""Topics: what open pages and feed streams watch, and what a domain offers to tell about them.

A topic has a kind and, for most kinds, an id: `explore`, `post:<id>`. Topics of one user have the username where the
client writes only the kind: `following` is `following:<username>` here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from plaza.core.auth import Actor
from plaza.core.events import Event
from plaza.core.http.responses import ServerSentEvent, encode_server_sent_event

# Pages that load the new comments of one thread, per second.
LOADS_PER_SECOND: Final = 100

NO_AUTHORS: Final[frozenset[str]] = frozenset()


class TopicMessage:
    """A message to the listeners of a topic. It is encoded once for all who see the same of it.

    `entries` are what it tells, each with its author's username: a viewer who must not see the author does not get
    it. `body` makes the message of the entries that are left.
    """

    __slots__ = ("_encoded", "authors", "body", "entries", "topic")

    def __init__(
        self, topic: str, entries: Sequence[tuple[str, Any]], body: Callable[[list[Any]], Mapping[str, Any]]
    ) -> None:
        self.topic = topic
        self.entries = entries
        self.body = body
        self.authors = frozenset(author for author, _ in entries)
        self._encoded: dict[tuple[frozenset[str], int], bytes] = {}

    def encoded(self, hidden: frozenset[str], at_ms: int) -> bytes:
        """Return it as a server-sent event with the time as its id; empty if nothing is left of it."""
        key = (hidden & self.authors if hidden else NO_AUTHORS, at_ms)
        found = self._encoded.get(key)
        if found is None:
            left = [entry for author, entry in self.entries if author not in hidden]
            event = ServerSentEvent(self.body(left), id=str(at_ms)) if left else None
            found = self._encoded[key] = encode_server_sent_event(event) if event else b""
        return found


class WatchedTopics(Protocol):
    """The topics with listeners in this process."""

    def listeners(self, topic: str) -> int:
        """Return how many listeners a topic has."""

    def of_kind(self, kind: str) -> Collection[str]:
        """Return the watched topics of a kind."""


class TopicSource(Protocol):
    """What a domain tells the listeners of its topics."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of its topics, such as `explore`; with a colon if a topic has an id: `post:`."""

    @property
    def event_types(self) -> Sequence[str]:
        """The events that change its topics."""

    def listen(self, note: Callable[[str], None]) -> None:
        """Take a function for changes that no event tells, which `messages` understands. Called once."""

    def changes(self, event: Event, watched: WatchedTopics) -> Iterable[str]:
        """Return what an event changes, if anybody watches it: any words that `messages` understands. No I/O."""

    async def resolve(self, viewer: Actor | None, names: Sequence[str]) -> Iterable[str]:
        """Return the topics that a client names, without those that the viewer must not see."""

    async def current(self, viewer: Actor | None, topics: Sequence[str], since_ms: int) -> Iterable[TopicMessage]:
        """Return messages with the current state, for a viewer who may have missed what happened since a time."""

    async def messages(self, changes: Sequence[str], watched: WatchedTopics) -> Iterable[TopicMessage]:
        """Return the messages about what has changed."""


class HiddenAuthors(Protocol):
    """Knows which users are hidden from a viewer."""

    async def hidden_from(self, viewers: Iterable[Actor], authors: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """Return the authors that are hidden from viewers, by the viewer's name."""


def spread_ms(watched: WatchedTopics | None, topic: str) -> int:
    """Return how long a page waits at most, at random, before it loads what is new: not all pages do so at once."""
    return 0 if watched is None else watched.listeners(topic) * 1000 // LOADS_PER_SECOND
