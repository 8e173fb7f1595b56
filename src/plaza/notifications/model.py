"""The types of notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from plaza.core.errors import NotFound
from plaza.core.notification_source import NotificationSubject
from plaza.core.paging import Page, Pagination
from plaza.core.validation_messages import described_pattern

# A subject can be read and change again many times. So many groups of it are kept.
MAX_OF_SUBJECT: Final = 20
# The types whose number of actors the source data tells, however many there are.
COUNTED_TYPES: Final = ("like", "follow", "challenge_reaction")
MAX_READ_IDS: Final = 100

_ID = described_pattern("Must be the id of a notification", r"^[A-Za-z0-9:_-]+$(?!\n)")
NotificationId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=_ID,
        description="The id of a notification.",
        examples=["like:post:6f1a3c1e-8a52-4b8e-9d25-1f6f5f8a2b11:1"],
    ),
]


class NoNotification(NotFound):
    title, code = "No notification has this id", "no_notification"


class NotificationsQuery(Page, frozen=True, kw_only=True):
    """The query parameters of the list."""

    filter: Annotated[Literal["all", "unread"], Meta(description="Which notifications to list.")] = "all"


class Notification(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A group of actors who did the same to one subject."""

    id: str
    type: str
    subject: NotificationSubject
    actors: list[str]  # the latest three usernames
    count: int  # of all actors
    updated_at: int  # the latest actor's time, Unix milliseconds
    read: Annotated[bool, Meta(description="Whether you have read it.")]
    # What happened, where no user is named: `banned`, `suspended`, `resolved`, `placed`, …
    action: str | None = None


class NotificationsPage(msgspec.Struct):
    notifications: list[Notification]
    pagination: Pagination
    unread: int


class UnreadCount(msgspec.Struct):
    """How many notifications are unread."""

    unread: int


class ReadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to mark as read: some notifications, or all that are not newer than a time."""

    ids: Annotated[list[NotificationId], Meta(min_length=1, max_length=MAX_READ_IDS)] | UnsetType = UNSET
    before: Annotated[int, Meta(ge=0, lt=2**53, description="Unix milliseconds.")] | UnsetType = UNSET


class ReadResult(msgspec.Struct):
    """How many notifications were marked as read, and how many are unread now."""

    read: int
    unread: int


class Preferences(msgspec.Struct):
    """Which types of notifications you get."""

    like: bool = True
    comment: bool = True
    reply: bool = True
    mention: bool = True
    follow: bool = True
    article_comment: bool = True
    challenge_reaction: bool = True
    challenge: bool = True
    challenge_invitation: bool = True
    challenge_reminder: bool = True
    order: bool = True
    moderation: bool = True


class PreferencesChange(msgspec.Struct, forbid_unknown_fields=True):
    """Types to turn on or off. The others stay as they are."""

    like: bool | UnsetType = UNSET
    comment: bool | UnsetType = UNSET
    reply: bool | UnsetType = UNSET
    mention: bool | UnsetType = UNSET
    follow: bool | UnsetType = UNSET
    article_comment: bool | UnsetType = UNSET
    challenge_reaction: bool | UnsetType = UNSET
    challenge: bool | UnsetType = UNSET
    challenge_invitation: bool | UnsetType = UNSET
    challenge_reminder: bool | UnsetType = UNSET
    order: bool | UnsetType = UNSET
    moderation: bool | UnsetType = UNSET


def turned_off(preferences: Mapping[str, str]) -> list[str]:
    """Return the types that stored preferences turn off."""
    return sorted(type for type, value in preferences.items() if value.startswith("off"))
