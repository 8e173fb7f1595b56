"""Challenges, members, posts, reactions, tracked days, and a log of deleted rows."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "challenges_0001"
down_revision = None
branch_labels = ("challenges",)
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _id() -> sa.Column[Any]:
    return sa.Column("id", _ID, primary_key=True, autoincrement=True)


def _of(table: str, column: str, target: str) -> sa.Column[Any]:
    key = sa.ForeignKey(f"{target}.id", name=f"fk_{table}_{column}", ondelete="CASCADE")
    return sa.Column(column, _ID, key, nullable=False)


def _name(column: str = "username") -> sa.Column[Any]:
    return sa.Column(column, sa.String(30), nullable=False)


def upgrade() -> None:
    op.create_table(
        "challenge",
        _id(),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("category", sa.Integer, nullable=False),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("duration", sa.Integer, nullable=False),
        _name("creator"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("ends_day", sa.Integer, nullable=False),
        sa.Column("operation", sa.String(64)),
        sa.UniqueConstraint("operation", name="uq_challenge_operation"),
        sa.CheckConstraint("category BETWEEN 1 AND 5", name="ck_challenge_category"),
        sa.CheckConstraint("duration > 0", name="ck_challenge_duration"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "member",
        _id(),
        _of("member", "challenge_id", "challenge"),
        _name(),
        sa.Column("joined_day", sa.Integer, nullable=False),
        sa.UniqueConstraint("challenge_id", "username", name="uq_member_challenge_id_username"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "post",
        _id(),
        _of("post", "challenge_id", "challenge"),
        _name(),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("is_break", sa.Boolean, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("operation", sa.String(64)),
        sa.UniqueConstraint("operation", name="uq_post_operation"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "reaction",
        _id(),
        _of("reaction", "post_id", "post"),
        _of("reaction", "challenge_id", "challenge"),
        _name(),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("post_id", "username", name="uq_reaction_post_id_username"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "tracking",
        _id(),
        _of("tracking", "challenge_id", "challenge"),
        _name(),
        sa.Column("day", sa.Integer, nullable=False),
        sa.UniqueConstraint("challenge_id", "username", "day", name="uq_tracking_challenge_id_username_day"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "challenge_removal",
        _id(),
        sa.Column("table_name", sa.String(10), nullable=False),
        sa.Column("row_id", sa.BigInteger, nullable=False),
        sa.Column("challenge_id", sa.BigInteger, nullable=False),
        sa.Column("post_id", sa.BigInteger),
        _name(),
        sqlite_autoincrement=True,
    )
    for table, columns in _INDEXES:
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)


_INDEXES = [
    ("challenge", ["ends_day"]),
    ("challenge", ["creator"]),
    ("member", ["username"]),
    ("post", ["challenge_id", "id"]),
    ("post", ["day"]),
    ("post", ["username"]),
    ("reaction", ["username", "challenge_id"]),
    ("reaction", ["challenge_id"]),
    ("tracking", ["username"]),
]


def downgrade() -> None:
    for table in ("challenge_removal", "tracking", "reaction", "post", "member", "challenge"):
        op.drop_table(table)
