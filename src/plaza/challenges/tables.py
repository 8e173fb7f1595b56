"""The record: challenges, who takes part, what they post, who reacts, and the days they kept at it.

Ids only ever grow, also after the newest row was deleted (SQLite would otherwise give its id out again), for the daily
job reads new rows by them. Days are numbers since 1970-01-01, UTC: what the day's slot in Valkey is computed from.
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

# SQLite counts up only in a column that is called INTEGER.
_ID = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[Any]:
    return Column("id", _ID, primary_key=True, autoincrement=True)


def _of(name: str, column: Column[Any]) -> Column[Any]:
    """A reference. What is deleted by hand takes along what hangs on it."""
    return Column(name, _ID, ForeignKey(column, ondelete="CASCADE"), nullable=False)


def _notes(name: str) -> Table:
    """Rows that came or went."""
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
    Column("ends_day", Integer, nullable=False),  # the first day on which it no longer goes on
    Column("operation", String(64), unique=True),  # what created it: the same request again makes no second one
    CheckConstraint("category BETWEEN 1 AND 5", name="category"),
    CheckConstraint("duration > 0", name="duration"),
    Index(None, "ends_day"),
    Index(None, "creator"),
    sqlite_autoincrement=True,
)
MEMBER = Table(
    "member",
    METADATA,
    _id(),
    _of("challenge_id", CHALLENGE.c.id),
    Column("username", String(30), nullable=False),
    Column("joined_day", Integer, nullable=False),
    UniqueConstraint("challenge_id", "username"),
    Index(None, "username"),
    sqlite_autoincrement=True,
)
POST = Table(
    "post",
    METADATA,
    _id(),
    _of("challenge_id", CHALLENGE.c.id),
    Column("username", String(30), nullable=False),
    Column("text", Text, nullable=False),
    Column("is_break", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("day", Integer, nullable=False),
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
    _of("post_id", POST.c.id),
    _of("challenge_id", CHALLENGE.c.id),  # the post's, so that a person's reactions in it are counted by index
    Column("username", String(30), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("post_id", "username"),
    Index(None, "username", "challenge_id"),
    Index(None, "challenge_id"),
    sqlite_autoincrement=True,
)
TRACKING = Table(
    "tracking",
    METADATA,
    _id(),
    _of("challenge_id", CHALLENGE.c.id),
    Column("username", String(30), nullable=False),
    Column("day", Integer, nullable=False),
    UniqueConstraint("challenge_id", "username", "day"),
    Index(None, "username"),
    sqlite_autoincrement=True,
)
# What Plaza itself deleted, written in the same transaction, so that the daily job knows what to take back and does
# not mistake it for rows that vanished behind its back.
REMOVAL = _notes("challenge_removal")
# What Plaza itself wrote since the last roll, noted likewise. Valkey has heard of it, but no roll has counted it: if
# somebody deletes it by hand, only this tells.
ARRIVAL = _notes("challenge_arrival")
# The tables whose rows are noted as they come. Challenges and posts are counted in Valkey; members have nothing there.
NOTED = ("reaction", "tracking")


def pool_of(today: int, max_post_age: int) -> ColumnElement[bool]:
    """Which posts, joined with their challenges, are in the pool: `model.in_pool`, for a statement."""
    recent = and_(POST.c.day > today - max_post_age, POST.c.day <= today, POST.c.is_break.is_(False))
    return and_(recent, CHALLENGE.c.is_public.is_(True), CHALLENGE.c.ends_day > today)


# By the abbreviations of `db_len`. A table comes after those it refers to.
BY_NAME = {"clg": CHALLENGE, "mmbr": MEMBER, "post": POST, "reaction": REACTION, "tracking": TRACKING}
