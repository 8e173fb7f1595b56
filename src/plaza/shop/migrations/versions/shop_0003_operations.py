"""The request that created an order, and when an item was created."""

import sqlalchemy as sa
from alembic import op

revision = "shop_0003"
down_revision = "shop_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shop_items", sa.Column("created_ms", sa.BigInteger))
    op.add_column("shop_orders", sa.Column("operation", sa.String(64)))
    op.create_index("uq_shop_orders_operation", "shop_orders", ["operation"], unique=True)


def downgrade() -> None:
    op.drop_index("uq_shop_orders_operation", "shop_orders")
    op.drop_column("shop_orders", "operation")
    op.drop_column("shop_items", "created_ms")
