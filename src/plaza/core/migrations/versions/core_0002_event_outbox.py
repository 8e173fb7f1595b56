"""Events of transactions, until they are in their stream."""

import sqlalchemy as sa
from alembic import op

revision = "core_0002"
down_revision = "core_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "event_outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("event_id", sa.String(80), nullable=False),
        sa.Column("stream", sa.String(40), nullable=False),
        sa.Column("type", sa.String(80), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("time_ms", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("origin", sa.String(20), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event_outbox"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("event_outbox")
