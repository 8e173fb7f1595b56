"""Edited posts and challenges with their history, and deleted challenges."""

import sqlalchemy as sa
from alembic import op

revision = "challenges_0004"
down_revision = "challenges_0003"
branch_labels = None
depends_on = None

_INDEXES = [
    ("challenge_edit", ["table_name", "row_id"]),
    ("challenge_edit", ["username"]),
    ("challenge", ["deleted_ms"]),
]


def upgrade() -> None:
    op.add_column("challenge", sa.Column("edited_ms", sa.BigInteger))
    op.add_column("challenge", sa.Column("deleted_ms", sa.BigInteger))
    op.add_column("post", sa.Column("edited_ms", sa.BigInteger))
    op.create_table(
        "challenge_edit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("table_name", sa.String(10), nullable=False),
        sa.Column("row_id", sa.BigInteger, nullable=False),
        sa.Column("username", sa.String(30), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    for table, columns in _INDEXES:
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)


def downgrade() -> None:
    op.drop_table("challenge_edit")
    op.drop_index("ix_challenge_deleted_ms", "challenge")
    for table, column in (("challenge", "edited_ms"), ("challenge", "deleted_ms"), ("post", "edited_ms")):
        op.drop_column(table, column)
