"""Challenges as records: the rows of their tables. What Valkey derives from them is rebuilt after an import."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from sqlalchemy import Table

from plaza.challenges.model import Category, iso_date, parse_date
from plaza.challenges.tables import CHALLENGE, COMMENT, EDIT, INVITATION, MEMBER, POST, REACTION, TRACKING
from plaza.community.records import RowRecords, TablePart
from plaza.core.sql import Sql
from plaza.core.tokens import USERNAME
from plaza.social.model import Millis, Username

CHALLENGE_KINDS: Final = (
    "challenge",
    "member",
    "tracking",
    "challenge_post",
    "reaction",
    "challenge_comment",
    "challenge_edit",
    "challenge_invitation",
)
# At most as many digits as an id in a key may have.
RowId = Annotated[int, Meta(ge=1, lt=10**16)]
# A union of `Username` and an empty text would refuse the latter.
NameOrNone = Annotated[str, Meta(pattern=rf"^({USERNAME})?$")]


class _ChallengeRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    title: Annotated[str, Meta(min_length=1, max_length=200)]
    category: Category
    is_public: bool
    duration: Annotated[int, Meta(ge=1)]
    creator: NameOrNone  # empty if the account was deleted
    created_ms: Millis
    ends_day: str
    unit: str = ""
    edited_ms: Millis | None = None
    deleted_ms: Millis | None = None


class _MemberRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    challenge_id: RowId
    username: Username
    joined_day: str
    reminder_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    reminder_time_zone: Annotated[str, Meta(max_length=64)] | None = None
    reminder_due_ms: Millis | None = None
    reminded_ms: Millis | None = None


class _TrackingRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    challenge_id: RowId
    username: Username
    day: str
    amount_thousandths: Annotated[int, Meta(ge=1)] | None = None


class _ChallengePostRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    challenge_id: RowId
    username: Username
    text: str
    is_break: bool
    created_ms: Millis
    day: str
    edited_ms: Millis | None = None


class _ReactionRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    post_id: RowId
    challenge_id: RowId
    username: Username
    created_ms: Millis


class _ChallengeCommentRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    post_id: RowId
    challenge_id: RowId
    username: Username
    content: str
    created_ms: Millis
    reply_to: RowId | None = None
    edited_ms: Millis | None = None


class _ChallengeEditRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    table_name: Literal["clg", "post", "comment"]
    row_id: RowId
    username: Username
    text: str
    until_ms: Millis


class _InvitationRecord(msgspec.Struct, forbid_unknown_fields=True):
    id: RowId
    challenge_id: RowId
    username: Username
    inviter: Username
    created_ms: Millis


def challenge_part(sql: Sql) -> TablePart:
    def rows(table: Table, struct: type[msgspec.Struct], *days: str) -> RowRecords:
        write, read = dict.fromkeys(days, iso_date), dict.fromkeys(days, parse_date)
        return RowRecords(table, struct, write, read)

    return TablePart(
        sql,
        {
            "challenge": rows(CHALLENGE, _ChallengeRecord, "ends_day"),
            "member": rows(MEMBER, _MemberRecord, "joined_day"),
            "tracking": rows(TRACKING, _TrackingRecord, "day"),
            "challenge_post": rows(POST, _ChallengePostRecord, "day"),
            "reaction": rows(REACTION, _ReactionRecord),
            "challenge_comment": rows(COMMENT, _ChallengeCommentRecord),
            "challenge_edit": rows(EDIT, _ChallengeEditRecord),
            "challenge_invitation": rows(INVITATION, _InvitationRecord),
        },
    )
