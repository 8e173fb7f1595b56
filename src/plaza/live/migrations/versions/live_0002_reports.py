"""What players reported with heartbeats: counts by country and bucket, devices and referring sites."""

import sqlalchemy as sa
from alembic import op

revision = "live_0002"
down_revision = "live_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "live_reports",
        sa.Column("event", sa.String(128), nullable=False),
        sa.Column("born_at", sa.BigInteger, nullable=False),
        sa.Column("metric", sa.String(16), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("bucket", sa.Integer, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("event", "born_at", "metric", "name", "bucket", name="pk_live_reports"),
    )


def downgrade() -> None:
    op.drop_table("live_reports")
