"""What challenges deal in, and the rules that need no store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from plaza.core.errors import Conflict, Forbidden, Invalid, NotFound
from plaza.core.paging import Pagination

CATEGORIES: Final = 5
DAY_MS: Final = 86_400_000
# Ten years: a challenge is not for ever.
MOST_DAYS: Final = 3_650

# The documents number the categories and do not name them; people are told a word.
CATEGORY_NAMES: Final = ("fitness", "food", "mind", "learning", "habits")

ChallengeId = Annotated[int, Meta(ge=1, lt=2**53, description="Id of a challenge.")]
PostId = Annotated[int, Meta(ge=1, lt=2**53, description="Id of a challenge's post.")]
# As these are written in Valkey; a 17th digit would be beyond what a score can hold.
_ID: Final = re.compile("[1-9][0-9]{0,15}")
_FIVE_COUNTS: Final = re.compile("[0-9]{1,9}(?:,[0-9]{1,9}){4}")

Category = Annotated[int, Meta(ge=1, le=CATEGORIES, description="1 to 5.")]


class NotMember(Forbidden):
    title, code = "Only members do this", "not_member"


class Private(Forbidden):
    title, code = "This challenge is private", "private"


class NotJoined(NotFound):
    title, code = "There is no membership to end", "not_joined"


class AlreadyJoined(Conflict):
    title, code = "Already a member", "already_joined"


class AlreadyTracked(Conflict):
    title, code = "This day is tracked already", "already_tracked"


class Ended(Conflict):
    title, code = "This challenge has ended", "ended"


class IsBreak(Conflict):
    title, code = "A break takes no reactions", "is_break"


class NewChallenge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(min_length=1, max_length=200)]
    category: Category
    is_public: bool
    duration: Annotated[int, Meta(ge=1, le=MOST_DAYS, description="In days.")]


class Challenge(msgspec.Struct, frozen=True):
    id: int
    title: str
    category: int
    is_public: bool
    duration: int
    creator: str
    created_at: int  # Unix milliseconds
    finished_date: str
    members: int


class ChallengesPage(msgspec.Struct, frozen=True):
    challenges: list[Challenge]
    pagination: Pagination


class Membership(msgspec.Struct, frozen=True):
    challenge_id: int
    username: str
    member: bool


class NewTracking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    date: Annotated[str, Meta(max_length=10, description="A date, such as `2026-12-06`; today if left out.")] | None = (
        None
    )


class Tracked(msgspec.Struct, frozen=True):
    id: int
    challenge_id: int
    username: str
    date: str


class NewPost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=5_000)]
    is_break: bool = False


class Post(msgspec.Struct, frozen=True):
    id: int
    challenge_id: int
    username: str
    text: str
    is_break: bool
    created_at: int  # Unix milliseconds
    reactions: int


class PostsPage(msgspec.Struct, frozen=True):
    posts: list[Post]
    pagination: Pagination


class Reaction(msgspec.Struct, frozen=True):
    post_id: int
    username: str
    reacted: bool
    changed: bool


def day_of(ms: int) -> int:
    """The UTC day of a moment, counted from 1970-01-01."""
    return ms // DAY_MS


def date_of(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


def day_named(text: str) -> int:
    """The day of an ISO date."""
    try:
        found = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise Invalid("must be a date, such as 2026-12-06", field="date") from error
    if found.strftime("%Y-%m-%d") != text:
        raise Invalid("must be a date, such as 2026-12-06", field="date")
    return (found.date() - date(1970, 1, 1)).days


def clean(text: str, field: str) -> str:
    """Text of a person: not only blanks, and nothing that databases refuse."""
    if not text.strip() or "\0" in text:
        raise Invalid("must have something to read, and no NUL", field=field)
    return text.strip()


def is_id(text: str) -> bool:
    """Whether a challenge or a post may be called so. Other services may write the documents' keys, too."""
    return _ID.fullmatch(text) is not None


def ids_of(texts: Iterable[str]) -> list[int]:
    """The ids among these; what else somebody wrote there is for the audit to say."""
    return [int(text) for text in texts if is_id(text)]


def days_of(text: str | None) -> list[int]:
    """The days by category, as `user_contribution` has them; none if it has nothing of the kind."""
    return [int(days) for days in text.split(",")] if text and _FIVE_COUNTS.fullmatch(text) else [0] * CATEGORIES


def clg_info(row: Any) -> str:
    """A challenge as `on_clg_info` has it."""
    return f"{row.category},{int(row.is_public)},{row.duration},{date_of(row.ends_day)}"


def in_pool(row: Any, today: int, max_post_age: int) -> bool:
    """Whether a post, joined with its challenge, is in the pool."""
    recent = today - max_post_age < row.day <= today
    return bool(recent and row.is_public and not row.is_break and row.ends_day > today)


def shown_of(text: str) -> tuple[int, int]:
    """On how many days a post was recommended to a person, and the last of them, as `challenges:shown:…` has it."""
    days, _, last = text.partition(",")
    return int(days), int(last)
