"""The currency of each order."""

import sqlalchemy as sa
from alembic import op

revision = "shop_0005"
down_revision = "shop_0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shop_orders", sa.Column("currency", sa.String(3)))


def downgrade() -> None:
    op.drop_column("shop_orders", "currency")
