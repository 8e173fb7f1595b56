"""The highest fencing token that wrote under each lease, so that SQL too can refuse a worker that fell behind."""

import sqlalchemy as sa
from alembic import op

revision = "core_0001"
down_revision = None
branch_labels = ("core",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fences",
        sa.Column("lease", sa.String(100), nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("lease", name="pk_fences"),
    )


def downgrade() -> None:
    op.drop_table("fences")
