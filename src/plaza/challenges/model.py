"""The types of challenges, and pure functions on them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from plaza.core.comment_tree import CommentText
from plaza.core.errors import Conflict, Forbidden, Invalid, NotFound
from plaza.core.paging import Page, Pagination
from plaza.core.text_patterns import USERNAME_PATTERN, VISIBLE_LINE, VISIBLE_TEXT
from plaza.core.validation_messages import described_pattern

CATEGORIES: Final = 5
DAY_MS: Final = 86_400_000
# Ten years.
MAX_DURATION_DAYS: Final = 3_650

# Amounts have at most three decimals. They are stored as whole thousandths, so that sums are exact.
MAX_AMOUNT: Final = 1_000_000

# The document only numbers the categories; reasons shown to users need a name.
CATEGORY_NAMES: Final = ("fitness", "food", "mind", "learning", "habits")

ChallengeId = Annotated[int, Meta(ge=1, lt=2**53, description="The id of a challenge.", examples=[2042])]
PostId = Annotated[int, Meta(ge=1, lt=2**53, description="The id of a challenge's post.", examples=[3042])]
ChallengeCommentId = Annotated[
    int, Meta(ge=1, lt=2**53, description="The id of a comment on a challenge's post.", examples=[3142])
]
# Ids as stored in Valkey. A sorted set's score is exact up to 16 digits.
_ID: Final = re.compile("[1-9][0-9]{0,15}")
_IDS: Final = re.compile("[1-9][0-9]{0,15}(?:,[1-9][0-9]{0,15})*+")
_FIVE_COUNTS: Final = re.compile("[0-9]{1,9}(?:,[0-9]{1,9}){4}")

_DATE: Final = described_pattern("must be a date such as 2026-12-06", r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$(?!\n)")
DateText = Annotated[
    str,
    Meta(pattern=_DATE, description="An ISO date such as `2026-12-06`. Default: today (UTC).", examples=["2026-12-06"]),
]
Unit = Annotated[str, Meta(max_length=20, pattern=VISIBLE_LINE, description="What members count besides days: `km`.")]
Title = Annotated[str, Meta(min_length=1, max_length=200, pattern=VISIBLE_LINE)]
PostText = Annotated[str, Meta(min_length=1, max_length=5_000, pattern=VISIBLE_TEXT)]
InvitedName = Annotated[
    str,
    Meta(
        pattern=USERNAME_PATTERN,
        description="The username of the invited user.",
        examples=["ben"],
    ),
]
Duration = Annotated[int, Meta(ge=1, le=MAX_DURATION_DAYS, description="In days.")]
Category = Annotated[int, Meta(ge=1, le=CATEGORIES, description="1 to 5: fitness, food, mind, learning, habits.")]


class NotMember(Forbidden):
    title, code = "Membership required", "not_member"


class PrivateChallenge(Forbidden):
    title, code = "The challenge is private", "private"


class NotJoined(NotFound):
    title, code = "Not a member", "not_joined"


class AlreadyJoined(Conflict):
    title, code = "Already a member", "already_joined"


class AlreadyTracked(Conflict):
    title, code = "The day is already tracked", "already_tracked"


class NotTracked(NotFound):
    title, code = "The day is not tracked", "not_tracked"


class ChallengeEnded(Conflict):
    title, code = "The challenge has ended", "ended"


class NotInvited(NotFound):
    title, code = "Not invited", "not_invited"


class TooManyInvitations(Conflict):
    title, code = "Too many open invitations", "too_many_invitations"


class UnitInUse(Conflict):
    title, code = "The unit is in use", "unit_in_use"


class ReactionToBreak(Conflict):
    title, code = "Breaks cannot get reactions", "is_break"


class NewChallenge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: Title
    category: Category
    is_public: bool
    duration: Duration
    unit: Unit | None = None


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
    unit: str | None = None  # None: only days are counted
    edited_at: int | None = None  # Unix milliseconds


class ChallengesPage(msgspec.Struct, frozen=True):
    challenges: list[Challenge]
    pagination: Pagination


class ChallengeInvitation(msgspec.Struct, frozen=True):
    challenge_id: int
    title: str
    username: str
    inviter: str
    created_at: int  # Unix milliseconds


class ChallengeInvitationsPage(msgspec.Struct, frozen=True):
    invitations: list[ChallengeInvitation]
    pagination: Pagination


class ChallengeMembership(msgspec.Struct, frozen=True):
    challenge_id: int
    username: str
    member: bool


class ChallengeEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change of a challenge. The rest stays as it is."""

    title: Title | UnsetType = UNSET
    duration: Duration | UnsetType = UNSET
    unit: Unit | UnsetType | None = UNSET


class DeletedChallenge(msgspec.Struct, frozen=True):
    id: int


class NewTracking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    date: DateText | None = None
    amount: (
        Annotated[float, Meta(gt=0, le=MAX_AMOUNT, description="In the challenge's unit, with at most three decimals.")]
        | None
    ) = None


class TrackedDay(msgspec.Struct, frozen=True):
    id: int
    challenge_id: int
    username: str
    date: str
    amount: float | None = None


class TrackedDaysPage(msgspec.Struct, frozen=True):
    days: list[TrackedDay]
    pagination: Pagination


class Totals(msgspec.Struct, frozen=True):
    """What a user has tracked in a challenge, as the columns of `member`."""

    days: int = 0
    amount_thousandths: int = 0
    streak: int = 0  # days in a row up to `last_day`
    longest_streak: int = 0
    last_day: int = 0

    def current_streak(self, today: int) -> int:
        """Days in a row up to today or yesterday: today can still be tracked."""
        return self.streak if self.last_day >= today - 1 else 0


class NewReminder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hour: Annotated[int, Meta(ge=0, le=23, description="The hour of the day in the time zone.")]
    time_zone: Annotated[str, Meta(max_length=64, description="The IANA name of a time zone: `Europe/Berlin`.")] = "UTC"


class ChallengeReminder(msgspec.Struct, frozen=True):
    """When a member is reminded of a day that is not tracked yet."""

    hour: int
    time_zone: str
    next_at: int  # Unix milliseconds


class ChallengeProgress(msgspec.Struct, frozen=True):
    """What a user has tracked in a challenge. A streak is a number of days in a row, by UTC dates."""

    challenge_id: int
    username: str
    member: bool
    days: int
    amount: float
    current_streak: int
    longest_streak: int
    last_date: str | None
    reminder: ChallengeReminder | None


class LeaderboardQuery(Page, frozen=True, kw_only=True):
    """The query parameters of a leaderboard."""

    by: Annotated[
        Literal["days", "amount", "streak"], Meta(description="What orders the members; `streak` is the current one.")
    ] = "days"


class LeaderboardMember(msgspec.Struct, frozen=True):
    username: str
    avatar: str
    days: int
    amount: float
    current_streak: int
    longest_streak: int


class Leaderboard(msgspec.Struct, frozen=True):
    """Members by what they tracked; `days` and `amount` are the totals of all members."""

    challenge_id: int
    unit: str | None
    days: int
    amount: float
    members: list[LeaderboardMember]
    pagination: Pagination


class NewChallengePost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: PostText
    is_break: bool = False


class ChallengePostEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: PostText


class DeletedChallengePost(msgspec.Struct, frozen=True):
    id: int


class ChallengePost(msgspec.Struct, frozen=True):
    id: int
    challenge_id: int
    username: str
    avatar: str
    text: str
    is_break: bool
    created_at: int  # Unix milliseconds
    reactions: int
    edited_at: int | None = None
    commentsCount: int = 0


class ChallengePostsPage(msgspec.Struct, frozen=True):
    posts: list[ChallengePost]
    pagination: Pagination


class NewChallengeComment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: CommentText
    reply_to: Annotated[int, Meta(ge=1, lt=2**53, description="The id of another comment on the same post.")] | None = (
        None
    )


class ChallengeCommentEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: CommentText


class ChallengeComment(msgspec.Struct, frozen=True):
    id: int
    challenge_id: int
    post_id: int
    username: str
    avatar: str
    content: str
    reply_to: int | None
    created_at: int  # Unix milliseconds
    edited_at: int | None = None


class ChallengeCommentsPage(msgspec.Struct, frozen=True):
    comments: list[ChallengeComment]
    pagination: Pagination


class DeletedChallengeComment(msgspec.Struct, frozen=True):
    id: int


class Reaction(msgspec.Struct, frozen=True):
    post_id: int
    username: str
    reacted: bool
    changed: bool


def day_number(ms: int) -> int:
    """The UTC day number of a time in Unix milliseconds; day 0 is 1970-01-01."""
    return ms // DAY_MS


def iso_date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


def parse_date(text: str) -> int:
    """The day number of an ISO date. Raises Invalid."""
    try:
        found = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise Invalid("must be a date such as 2026-12-06", field="date") from error
    if found.strftime("%Y-%m-%d") != text:
        raise Invalid("must be a date such as 2026-12-06", field="date")
    return (found.date() - date(1970, 1, 1)).days


def to_thousandths(amount: float) -> int:
    """An amount as whole thousandths. Raises Invalid if it has more than three decimals."""
    if math.isfinite(amount) and round(amount, 3) == amount and 0 < amount <= MAX_AMOUNT:
        return round(amount * 1_000)
    raise Invalid(f"must be greater than 0, at most {MAX_AMOUNT:,}, with at most three decimals", field="amount")


def from_thousandths(thousandths: int) -> float:
    """The number nearest to so many thousandths, which is written as exactly that decimal number."""
    return thousandths / 1_000


def clean_text(text: str, field: str) -> str:
    """A user's text without surrounding whitespace. Raises Invalid if it is blank or has a NUL, which SQL rejects."""
    if not text.strip() or "\0" in text:
        raise Invalid("must not be blank or contain NUL characters", field=field)
    return text.strip()


def is_id(text: str) -> bool:
    """Whether a text is a valid id of a challenge or post. Other services write to the documented keys too."""
    return _ID.fullmatch(text) is not None


def valid_ids(texts: Sequence[str]) -> list[int]:
    """The valid ids among these texts. The audit reports the others."""
    # As a rule all are, which one match tells in a third of the time.
    return list(map(int, texts if _IDS.fullmatch(",".join(texts)) else filter(_ID.fullmatch, texts)))


def parse_contribution(text: str | None) -> list[int]:
    """Days per category from a value of `user_contribution`; all 0 if it is missing or invalid."""
    return [int(days) for days in text.split(",")] if text and _FIVE_COUNTS.fullmatch(text) else [0] * CATEGORIES


def format_clg_info(row: Any) -> str:
    """The value of a challenge in `on_clg_info`."""
    return f"{row.category},{int(row.is_public)},{row.duration},{iso_date(row.ends_day)}"


def in_pool(row: Any, today: int, max_post_age: int) -> bool:
    """Whether a post belongs in the pool; `row` has the post's and its challenge's columns."""
    recent = today - max_post_age < row.day <= today
    return bool(recent and row.is_public and not row.is_break and row.ends_day > today)


def parse_shown(text: str) -> tuple[int, int]:
    """The number of days a post was shown and the last of them, from a value of `challenges:shown:<username>`."""
    days, _, last = text.partition(",")
    return int(days), int(last)
