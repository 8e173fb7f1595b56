"""Reports."""

import sqlalchemy as sa
from alembic import op

revision = "reports_0001"
down_revision = None
branch_labels = ("reports",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "reports",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("thing", sa.String(64), nullable=False),
        sa.Column("author", sa.String(30), nullable=False),
        sa.Column("reporter", sa.String(30), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("admin", sa.String(30), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("closed_ms", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_reports_state_id", "reports", ["state", "id"])
    op.create_index("ix_reports_author_id", "reports", ["author", "id"])
    op.create_index("ix_reports_reporter_id", "reports", ["reporter", "id"])
    is_open = sa.text("state = 'open'")
    op.create_index(
        "uq_reports_open",
        "reports",
        ["kind", "thing", "reporter"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )


def downgrade() -> None:
    op.drop_table("reports")
