"""The security log in SQL."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table

from plaza.core.sql import metadata

METADATA = metadata()

SECURITY_LOG = Table(
    "accounts_security_log",
    METADATA,
    # SQLite counts up only in a column of the type INTEGER.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String(10), nullable=False, server_default="account"),  # `admin` or `account`
    Column("actor", String(60), nullable=False),  # a username, `@api:<name>` for an API key, `@cli:<name>` on the host
    Column("action", String(120), nullable=False),  # `PATCH /users/{username}/role`, or an account event: `sign_in`
    Column("subject", String(300), nullable=False),
    Column("detail", String(300), nullable=False, server_default=""),  # such as `role=admin`; never a secret
    Column("address", String(64), nullable=False),
    Column("result", String(40), nullable=False),  # an HTTP status, or `started` while it is unknown
    Column("request_id", String(64), nullable=False),
    Index(None, "actor", "id"),
    Index(None, "subject", "id"),
    Index(None, "action", "id"),
    Index(None, "at_ms"),
)
