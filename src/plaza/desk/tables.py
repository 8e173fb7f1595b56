"""The SQL tables of the desk. All but the notes are derived: users from their profiles, days from the events."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from plaza.core.sql import metadata

METADATA = metadata()

# Compared byte by byte, so that a range of names is a prefix in every locale.
_NAME = String(30).with_variant(String(30, collation="C"), "postgresql")

DESK_USERS = Table(
    "desk_users",
    METADATA,
    Column("username", _NAME, primary_key=True),
    Column("folded", _NAME, nullable=False),  # the name in lower case
    Column("role", String(10), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("suspended_ms", BigInteger),  # null while the user is active
    Index(None, "folded", "username"),
    Index(None, "created_ms", "username"),
    Index(None, "role", "created_ms", "username"),
    Index(None, "suspended_ms"),
)
USER_NOTES = Table(
    "desk_notes",
    METADATA,
    # SQLite counts up only in a column of the type INTEGER.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("username", String(30), nullable=False),
    Column("author", String(60), nullable=False),  # the operator; empty if the account was deleted
    Column("text", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("operation", String(64)),  # the request that wrote it: a repeated one writes no second note
    Index("uq_desk_notes_operation", "operation", unique=True),
    Index(None, "username", "id"),
)
DESK_DAYS = Table(
    "desk_days",
    METADATA,
    Column("day", String(10), primary_key=True),  # UTC, `2026-11-18`
    Column("metric", String(10), primary_key=True),
    Column("total", BigInteger, nullable=False),
)
# How far each stream of events is counted. It changes with the counts, so each event counts once.
DESK_POSITIONS = Table(
    "desk_positions",
    METADATA,
    Column("stream", String(60), primary_key=True),
    Column("entry", String(40), nullable=False),
)
