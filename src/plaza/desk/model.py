"""The types of the desk."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from plaza.core.paging import Page, Pagination
from plaza.core.roles import Role
from plaza.core.text_patterns import USERNAME_PATTERN
from plaza.core.validation_messages import described_pattern

MAX_NOTE_CHARACTERS: Final = 2_000
MAX_DAYS: Final = 366

# Line breaks and tabs, but no other control characters: PostgreSQL cannot store NUL.
_TEXT: Final = described_pattern("Invalid text. Remove the control characters", r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$")
ListedName = Annotated[str, Meta(pattern=USERNAME_PATTERN, description="Case-sensitive.", examples=["ana"])]
NoteId = Annotated[int, Meta(ge=1, lt=2**53, description="Id of a note.", examples=[6042])]
ListedState = Literal["active", "suspended"]
Metric = Literal["new_users", "active", "posts", "votes", "orders"]


class ListedUser(msgspec.Struct, frozen=True):
    """A user as operators list them. Times are Unix milliseconds; `suspended_at` is null while the user is active."""

    username: str
    role: Role
    created_at: int
    suspended_at: int | None


class ListedUsersPage(msgspec.Struct, frozen=True):
    users: list[ListedUser]
    pagination: Pagination


class ListedUsersQuery(Page, frozen=True, kw_only=True):
    """The query parameters of the list of all users."""

    q: Annotated[str, Meta(max_length=30, description="How the username begins, in any case.", examples=["an"])] = ""
    role: Annotated[Role, Meta(description="Only users with this role.")] | None = None
    state: Annotated[ListedState, Meta(description="Only users in this state.")] | None = None


class NewNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=MAX_NOTE_CHARACTERS, pattern=_TEXT)]


class UserNote(msgspec.Struct, frozen=True):
    """A note of an operator about a user. `created_at` is in Unix milliseconds."""

    id: int
    username: str
    author: str
    text: str
    created_at: int


class UserNotesPage(msgspec.Struct, frozen=True):
    notes: list[UserNote]
    pagination: Pagination


class GrowthQuery(msgspec.Struct, frozen=True):
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, description="How many days, up to today.")] = 30


class DayFigures(msgspec.Struct, frozen=True):
    """What happened on a day (UTC). `active` is an estimate with an error of about 1%."""

    day: str
    new_users: int
    active: int
    posts: int
    votes: int
    orders: int


class GrowthFigures(msgspec.Struct, frozen=True):
    """Figures by day, oldest first. Today's are complete up to a minute ago."""

    days: list[DayFigures]
