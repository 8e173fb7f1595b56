"""What outlives the raw keys of an audience: viewing sessions, five-minute records, totals."""

import sqlalchemy as sa
from alembic import op

revision = "live_0001"
down_revision = None
branch_labels = ("live",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "live_viewings",
        sa.Column("event", sa.String(128), nullable=False),
        sa.Column("session", sa.String(128), nullable=False),
        sa.Column("location", sa.String(128), nullable=False),
        sa.Column("viewer", sa.String(128), nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event", "session", "location", "viewer", "started_at", name="pk_live_viewings"),
    )
    op.create_index("ix_live_viewings_viewer", "live_viewings", ["viewer"])
    op.create_table(
        "live_records",
        sa.Column("event", sa.String(128), nullable=False),
        sa.Column("session", sa.String(128), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("event", "session", "at", name="pk_live_records"),
    )
    op.create_table(
        "live_totals",
        sa.Column("event", sa.String(128), nullable=False),
        sa.Column("session", sa.String(128), nullable=False),
        sa.Column("born_at", sa.BigInteger, nullable=False),
        sa.Column("peak", sa.BigInteger, nullable=False),
        sa.Column("peak_at", sa.BigInteger, nullable=False),
        sa.Column("logins", sa.BigInteger, nullable=False),
        sa.Column("attended", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event", "session", "born_at", name="pk_live_totals"),
    )


def downgrade() -> None:
    op.drop_table("live_totals")
    op.drop_table("live_records")
    op.drop_table("live_viewings")
