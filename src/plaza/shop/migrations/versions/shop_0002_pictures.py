"""Pictures of items."""

import sqlalchemy as sa
from alembic import op

revision = "shop_0002"
down_revision = "shop_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shop_items", sa.Column("media", sa.Text))


def downgrade() -> None:
    op.drop_column("shop_items", "media")
