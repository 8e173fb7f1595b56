"""What a domain offers to notifications: who is to be told of what, by its events and by its source data.

A subject is a text that says what a notification is about: its kind and its ids, such as `post:<id>` or
`comment:<post>:<comment>`. The kind decides which source answers for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence, Set
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from plaza.core.events import Event, EventData
from plaza.core.mentions import mentions_in

NotificationType = Literal[
    "like",
    "comment",
    "reply",
    "mention",
    "follow",
    "article_comment",
    "challenge_reaction",
    "challenge",
    "challenge_invitation",
    "challenge_reminder",
    "order",
    "moderation",
]
NOTIFICATION_TYPES: Final[tuple[NotificationType, ...]] = NotificationType.__args__  # type: ignore[attr-defined]

# A group names so many actors exactly. It knows how many more there are.
MAX_ACTORS: Final = 1_000

# The types that are told below a post or an article of another user. Who was told of them is indexed.
INDEXED_TYPES: Final = ("reply", "mention")

# In place of a recipient: each user who was told of an indexed type.
EVERYONE_TOLD: Final = "*"

# How much of a text a notification shows.
EXCERPT_CHARACTERS: Final = 120


class GroupName(NamedTuple):
    """Whose notifications, of which type, about what."""

    recipient: str
    type: str
    subject: str


class Activity(Struct, frozen=True):
    """Something that an actor may have done. Whether it stands, the source data says."""

    group: GroupName
    actor: str  # a username, or with `@` what happened, where no user is named: `@banned`
    at_ms: int = 0  # when the event happened, for what the source data has no time of
    ref: str = ""  # the id of what the actor made, if there is one: a comment
    renamed: bool = False  # the actor has done it before, under another name
    owner: str = ""  # the author of the post that it is below; a block by the owner hides it


class LatestActors(Struct, frozen=True):
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
    """The activities about some kinds of subjects. A source inherits what it has nothing of."""

    @property
    def stream(self) -> str:
        """The domain whose events it reads."""

    @property
    def events(self) -> Sequence[type[EventData]]:
        """The events it reads."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of subjects that it answers for."""

    async def activities(self, events: Sequence[Event]) -> Sequence[Activity]:
        """Return what events may have begun or ended. The recipient may be `EVERYONE_TOLD`."""

    async def ended(self, events: Sequence[Event]) -> Sequence[GroupName]:
        """Return the groups whose subjects cannot be seen any more.

        The recipient may be `EVERYONE_TOLD`, with a subject or the root of many.
        """
        return []

    def rechecked(self, events: Sequence[Event]) -> Collection[str]:
        """Return the users who may not see any more what they were told of."""
        return ()

    async def times(self, activities: Sequence[Activity]) -> Sequence[int | None]:
        """Return when each happened, Unix milliseconds, by source data; None for one that does not stand."""

    async def latest(
        self, group: GroupName, since_ms: int, until_ms: int | None, uncounted: Set[str]
    ) -> LatestActors | None:
        """Return the latest `MAX_ACTORS` from one time to before another; None if counting them would cost too much.

        The total leaves out some users.
        """
        return None

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> Sequence[NotificationSubject | Absence]:
        """Return what the recipient sees of subjects, each with the type of its notification. One round trip."""

    async def activities_by(self, username: str) -> Sequence[Activity]:
        """Return what a renamed user did that has no events of the renaming, such as comments."""
        return []

    async def roots_of(self, username: str) -> Sequence[str]:
        """Return the roots of the subjects that are hidden from users who are blocked by a user, or block the user."""
        return []

    def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Return what stands in source data since a time, in batches."""


class Recipients(Protocol):
    def recipient_keys(self, username: str) -> Sequence[str]:
        """Return a user's profile, then the sorted sets of users whose activities are not told to the user.

        The first two, of blocks, also hide what is below the posts of their members.
        """

    async def current_names(self, names: Sequence[str]) -> Mapping[str, str]:
        """Return the current username for each name that a user has or had. One round trip."""


async def mentioned_users(text: str | None, recipients: Recipients | None) -> set[str]:
    """Return the users that a text mentions, by their current names. One round trip, none without mentions."""
    names = mentions_in(text or "")
    if not names or recipients is None:
        return set(names)
    return set((await recipients.current_names(names)).values())


def subject_kind(subject: str) -> str:
    return subject.partition(":")[0]


def root_of(subject: str) -> str:
    """Return what a subject is below, as `comment:<post>`: its kind and its first id."""
    return ":".join(subject.split(":", 2)[:2])


def excerpt(text: str | None) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join((text or "").split())
    return line if len(line) <= EXCERPT_CHARACTERS else f"{line[: EXCERPT_CHARACTERS - 1].rstrip()}…"
