"""What a domain offers to notifications: who is to be told of what, by its events and by its source data.

A subject is a text that says what a notification is about: its kind and its ids, such as `post:<id>` or
`comment:<post>:<comment>`. The kind decides which source answers for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from plaza.core.events import Event

NotificationType = Literal[
    "like", "comment", "reply", "mention", "follow", "article_comment", "challenge_reaction", "order", "moderation"
]
NOTIFICATION_TYPES: Final[tuple[NotificationType, ...]] = NotificationType.__args__  # type: ignore[attr-defined]

# A group names so many actors exactly. It knows how many more there are.
MAX_ACTORS: Final = 1_000

# How much of a text a notification shows.
EXCERPT_CHARACTERS: Final = 120


class GroupName(NamedTuple):
    """Whose notifications, of which type, about what."""

    recipient: str
    type: str
    subject: str


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that an actor may have done. Whether it stands, the source data says."""

    group: GroupName
    actor: str  # a username, or with `@` what happened, where no user is named: `@banned`
    at_ms: int = 0  # when the event happened, for what the source data has no time of
    ref: str = ""  # the id of what the actor made, if there is one: a comment
    renamed: bool = False  # the actor has done it before, under another name


@dataclass(frozen=True, slots=True)
class LatestActors:
    """The latest actors, each with the time, Unix milliseconds, and how many there are in all."""

    actors: Sequence[tuple[str, int]]
    total: int


class NotificationSubject(msgspec.Struct, frozen=True):
    """What a notification is about. `text` is the beginning of its text, `url` the path of its page."""

    kind: str
    id: str
    text: str = ""
    url: str = ""


class Absence(Enum):
    """Why a subject cannot be shown."""

    HIDDEN = "hidden"  # for a while, such as a banned post
    GONE = "gone"  # deleted


class NotificationSource(Protocol):
    """The activities about some kinds of subjects."""

    @property
    def stream(self) -> str:
        """The domain whose events it reads."""

    @property
    def event_types(self) -> Sequence[str]:
        """The types of the events it reads."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of subjects that it answers for."""

    async def activities(self, events: Sequence[Event]) -> Sequence[Activity]:
        """Return what events may have begun or ended."""

    async def ended(self, events: Sequence[Event]) -> Iterable[GroupName]:
        """Return the groups whose subjects cannot be seen any more, of the users who wrote the subjects."""

    async def times(self, activities: Sequence[Activity]) -> Sequence[int | None]:
        """Return when each happened, Unix milliseconds, by source data; None for one that does not stand."""

    async def latest(self, group: GroupName, since_ms: int, until_ms: int | None) -> LatestActors | None:
        """Return the latest `MAX_ACTORS` from one time to before another; None if counting them would cost too much."""

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> Sequence[NotificationSubject | Absence]:
        """Return what the recipient sees of subjects, each with the type of its notification. One round trip."""

    async def activities_by(self, username: str) -> Sequence[Activity]:
        """Return what a renamed user did that has no events of the renaming, such as comments."""

    def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Return what stands in source data since a time, in batches."""


class Recipients(Protocol):
    def recipient_keys(self, username: str) -> Sequence[str]:
        """Return a user's profile, then the sorted sets of users whose activities are not told to the user."""

    async def current_names(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the current username for each name that a user has or had. One round trip."""


def subject_kind(subject: str) -> str:
    return subject.partition(":")[0]


def excerpt(text: str | None) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join((text or "").split())
    return line if len(line) <= EXCERPT_CHARACTERS else f"{line[: EXCERPT_CHARACTERS - 1].rstrip()}…"
