"""The table `parents`."""

import sqlalchemy as sa
from alembic import op

revision = "sample_0001"
down_revision = None
branch_labels = ("sample",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "parents",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(50), nullable=False),
        sa.Column("amount", sa.Integer, nullable=False),
        sa.CheckConstraint("amount >= 0", name="ck_parents_amount"),
        sa.UniqueConstraint("name", name="uq_parents_name"),
    )


def downgrade() -> None:
    op.drop_table("parents")
