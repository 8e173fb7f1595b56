"""The table `children`, each row with a parent."""

import sqlalchemy as sa
from alembic import op

revision = "sample_0002"
down_revision = "sample_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "children",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("parent", sa.Integer, sa.ForeignKey("parents.id", name="fk_children_parent"), nullable=False),
        sa.Column("name", sa.String(50), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("children")
