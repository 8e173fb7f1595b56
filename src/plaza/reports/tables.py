"""The SQL table of reports."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from plaza.core.sql import metadata

METADATA = metadata()

REPORTS = Table(
    "reports",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("kind", String(20), nullable=False),  # `subject` in the API
    Column("thing", String(64), nullable=False),  # its id
    Column("author", String(30), nullable=False),  # of the thing, when it was reported
    Column("reporter", String(30), nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String(10), nullable=False),
    Column("note", Text, nullable=False),  # by the admin who closed it
    Column("admin", String(30), nullable=False),  # empty while it is open
    Column("created_ms", BigInteger, nullable=False),
    Column("closed_ms", BigInteger),
    Column("operation", String(64)),  # the request that created it: a repeated one creates no second report
    Index("uq_reports_operation", "operation", unique=True),
    Index(None, "state", "id"),
    Index(None, "author", "id"),
    Index(None, "reporter", "id"),
    # One open report for each user and thing. Its condition is in the migration: here, SQLAlchemy would import the
    # dialect of PostgreSQL for it, at every start.
    Index("uq_reports_open", "kind", "thing", "reporter", unique=True),
    sqlite_autoincrement=True,  # an id is never used again
)
