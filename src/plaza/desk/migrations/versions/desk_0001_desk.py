"""Users, notes about them, and the figures of each day."""

import sqlalchemy as sa
from alembic import op

revision = "desk_0001"
down_revision = None
branch_labels = ("desk",)
depends_on = None

_NAME = sa.String(30).with_variant(sa.String(30, collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "desk_users",
        sa.Column("username", _NAME, primary_key=True),
        sa.Column("folded", _NAME, nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("suspended_ms", sa.BigInteger),
    )
    op.create_index("ix_desk_users_folded_username", "desk_users", ["folded", "username"])
    op.create_index("ix_desk_users_created_ms_username", "desk_users", ["created_ms", "username"])
    op.create_index("ix_desk_users_role_created_ms_username", "desk_users", ["role", "created_ms", "username"])
    op.create_index("ix_desk_users_suspended_ms", "desk_users", ["suspended_ms"])
    op.create_table(
        "desk_notes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("username", sa.String(30), nullable=False),
        sa.Column("author", sa.String(60), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("operation", sa.String(64)),
    )
    op.create_index("uq_desk_notes_operation", "desk_notes", ["operation"], unique=True)
    op.create_index("ix_desk_notes_username_id", "desk_notes", ["username", "id"])
    op.create_table(
        "desk_days",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("metric", sa.String(10), primary_key=True),
        sa.Column("total", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "desk_positions",
        sa.Column("stream", sa.String(60), primary_key=True),
        sa.Column("entry", sa.String(40), nullable=False),
    )


def downgrade() -> None:
    for name in ("desk_positions", "desk_days", "desk_notes", "desk_users"):
        op.drop_table(name)
