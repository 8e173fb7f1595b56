"""Plants, each in a bed."""

import sqlalchemy as sa
from alembic import op

revision = "garden_0002"
down_revision = "garden_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "plants",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("bed", sa.Integer, sa.ForeignKey("beds.id", name="fk_plants_bed"), nullable=False),
        sa.Column("name", sa.String(50), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("plants")
