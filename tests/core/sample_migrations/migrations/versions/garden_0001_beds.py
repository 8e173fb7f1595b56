"""Beds."""

import sqlalchemy as sa
from alembic import op

revision = "garden_0001"
down_revision = None
branch_labels = ("garden",)
depends_on = None


def upgrade() -> None:
    op.create_table(
        "beds",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(50), nullable=False),
        sa.Column("free", sa.Integer, nullable=False),
        sa.CheckConstraint("free >= 0", name="ck_beds_free"),
        sa.UniqueConstraint("name", name="uq_beds_name"),
    )


def downgrade() -> None:
    op.drop_table("beds")
