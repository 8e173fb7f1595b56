"""The SQL tables: challenges, members, posts, reactions, comments, tracked days, and two logs for the daily job.

The daily job reads new rows by id, so ids must only rise. SQLite would reuse the id of a deleted newest row without
AUTOINCREMENT. Days are UTC day numbers since 1970-01-01; the slots in Valkey are computed from them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
)

from plaza.core.sql import metadata

METADATA = metadata()

# SQLite supports AUTOINCREMENT only on a column of type INTEGER.
_ID = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[Any]:
    return Column("id", _ID, primary_key=True, autoincrement=True)


def _foreign_key(name: str, column: Column[Any]) -> Column[Any]:
    """A foreign key. Rows deleted by hand take their dependent rows with them."""
    return Column(name, _ID, ForeignKey(column, ondelete="CASCADE"), nullable=False)


def _row_log(name: str) -> Table:
    """A log of inserted or deleted rows."""
    return Table(
        name,
        METADATA,
        _id(),
        Column("table_name", String(10), nullable=False),  # as in `db_len`
        Column("row_id", BigInteger, nullable=False),
        Column("challenge_id", BigInteger, nullable=False),
        Column("post_id", BigInteger),
        Column("username", String(30), nullable=False),
        sqlite_autoincrement=True,
    )


CHALLENGE = Table(
    "challenge",
    METADATA,
    _id(),
    Column("title", String(200), nullable=False),
    Column("category", Integer, nullable=False),
    Column("is_public", Boolean, nullable=False),
    Column("duration", Integer, nullable=False),  # days
    Column("creator", String(30), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("ends_day", Integer, nullable=False),  # the first day after its end
    Column("unit", String(20), nullable=False, server_default=""),  # of the amounts that members track; "" for none
    Column("edited_ms", BigInteger),
    # The time of its deletion. The row stays, since the days that members tracked in it stay theirs.
    Column("deleted_ms", BigInteger),
    Column("operation", String(64), unique=True),  # the request that created it, so that a retry creates no second one
    CheckConstraint("category BETWEEN 1 AND 5", name="category"),
    CheckConstraint("duration > 0", name="duration"),
    Index(None, "ends_day"),
    Index(None, "creator"),
    Index(None, "deleted_ms"),
    sqlite_autoincrement=True,
)
MEMBER = Table(
    "member",
    METADATA,
    _id(),
    _foreign_key("challenge_id", CHALLENGE.c.id),
    Column("username", String(30), nullable=False),
    Column("joined_day", Integer, nullable=False),
    # What the member has tracked: `plaza.challenges.member_totals` computes it from `tracking`.
    Column("days", Integer, nullable=False, server_default="0"),
    Column("amount_thousandths", BigInteger, nullable=False, server_default="0"),
    Column("streak", Integer, nullable=False, server_default="0"),  # days in a row up to `last_day`
    Column("longest_streak", Integer, nullable=False, server_default="0"),
    Column("last_day", Integer, nullable=False, server_default="0"),
    # The reminder that the member has set: the local hour and when it is due next; and when the last one was sent.
    Column("reminder_hour", Integer),
    Column("reminder_time_zone", String(64)),
    Column("reminder_due_ms", BigInteger),
    Column("reminded_ms", BigInteger),
    UniqueConstraint("challenge_id", "username"),
    Index(None, "username"),
    Index(None, "reminder_due_ms"),
    sqlite_autoincrement=True,
)
# The orders of leaderboards. The first also has what their totals add up, the last what a current streak depends on.
Index("ix_member_days", MEMBER.c.challenge_id, MEMBER.c.days.desc(), MEMBER.c.id, MEMBER.c.amount_thousandths)
Index("ix_member_amount", MEMBER.c.challenge_id, MEMBER.c.amount_thousandths.desc(), MEMBER.c.id)
Index("ix_member_streak", MEMBER.c.challenge_id, MEMBER.c.streak.desc(), MEMBER.c.id, MEMBER.c.last_day)
POST = Table(
    "post",
    METADATA,
    _id(),
    _foreign_key("challenge_id", CHALLENGE.c.id),
    Column("username", String(30), nullable=False),
    Column("text", Text, nullable=False),
    Column("is_break", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("day", Integer, nullable=False),
    Column("edited_ms", BigInteger),
    Column("operation", String(64), unique=True),
    Index(None, "challenge_id", "id"),
    Index(None, "day"),
    Index(None, "username"),
    sqlite_autoincrement=True,
)
REACTION = Table(
    "reaction",
    METADATA,
    _id(),
    _foreign_key("post_id", POST.c.id),
    _foreign_key(
        "challenge_id", CHALLENGE.c.id
    ),  # the post's; here so that an index counts a user's reactions per challenge
    Column("username", String(30), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("post_id", "username"),
    Index(None, "username", "challenge_id"),
    Index(None, "challenge_id"),
    sqlite_autoincrement=True,
)
COMMENT = Table(
    "challenge_comment",
    METADATA,
    _id(),
    _foreign_key("post_id", POST.c.id),
    _foreign_key("challenge_id", CHALLENGE.c.id),  # the post's
    Column("username", String(30), nullable=False),
    Column("content", Text, nullable=False),
    Column("reply_to", BigInteger),  # the id of an earlier comment on the post; that one may be deleted
    Column("created_ms", BigInteger, nullable=False),
    Column("edited_ms", BigInteger),
    Column("operation", String(64), unique=True),
    Index(None, "post_id", "id"),
    Index(None, "challenge_id"),
    Index(None, "username", "post_id"),
    sqlite_autoincrement=True,
)
TRACKING = Table(
    "tracking",
    METADATA,
    _id(),
    _foreign_key("challenge_id", CHALLENGE.c.id),
    Column("username", String(30), nullable=False),
    Column("day", Integer, nullable=False),
    Column("amount_thousandths", BigInteger),  # in the challenge's unit: whole numbers, so that sums are exact
    UniqueConstraint("challenge_id", "username", "day"),
    Index(None, "username"),
    sqlite_autoincrement=True,
)
INVITATION = Table(
    "challenge_invitation",
    METADATA,
    _id(),
    _foreign_key("challenge_id", CHALLENGE.c.id),
    Column("username", String(30), nullable=False),  # of the invited user
    Column("inviter", String(30), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("challenge_id", "username"),
    Index(None, "username"),
    Index(None, "inviter"),
    sqlite_autoincrement=True,
)
# What a post, a comment or a challenge was before each edit.
EDIT = Table(
    "challenge_edit",
    METADATA,
    _id(),
    Column("table_name", String(10), nullable=False),  # as in `db_len`; "comment" for a comment
    Column("row_id", BigInteger, nullable=False),
    Column("username", String(30), nullable=False),  # of the author
    Column("text", Text, nullable=False),  # of a challenge: its title, duration and unit as JSON
    Column("until_ms", BigInteger, nullable=False),
    Index(None, "table_name", "row_id"),
    Index(None, "username"),
    sqlite_autoincrement=True,
)
# Rows that Plaza deleted, logged in the same transaction. The daily job updates what is derived from them and does not
# take them for rows deleted by another program.
DELETE_LOG = _row_log("challenge_removal")
# Rows that Plaza inserted since the last run of the daily job. Valkey has them, but no run has counted them: if another
# program deletes one, only this log shows it. Challenges that were edited or deleted are in it too: the next run
# updates what is derived from them, if the request could not.
INSERT_LOG = _row_log("challenge_arrival")
# The tables whose inserts are logged. Challenges and posts are counted in Valkey; nothing there depends on members.
LOGGED_TABLES = ("reaction", "tracking")


def pool_condition(today: int, max_post_age: int) -> ColumnElement[bool]:
    """`model.in_pool` as an SQL condition on POST joined with CHALLENGE."""
    recent = and_(POST.c.day > today - max_post_age, POST.c.day <= today, POST.c.is_break.is_(False))
    return and_(recent, CHALLENGE.c.is_public.is_(True), CHALLENGE.c.ends_day > today)


# The column of each table that refers to a parent row, and the parent. Children come before their parents.
REFERENCES = (
    ("reaction", REACTION.c.post_id, POST),
    ("reaction", REACTION.c.challenge_id, CHALLENGE),
    ("post", POST.c.challenge_id, CHALLENGE),
    ("mmbr", MEMBER.c.challenge_id, CHALLENGE),
    ("tracking", TRACKING.c.challenge_id, CHALLENGE),
)


# By their abbreviations in `db_len`. A table comes after the tables it references.
TABLES = {"clg": CHALLENGE, "mmbr": MEMBER, "post": POST, "reaction": REACTION, "tracking": TRACKING}
