"""States and notes of orders, withdrawn items, and changes of stock."""

import sqlalchemy as sa
from alembic import op

revision = "shop_0004"
down_revision = "shop_0003"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_TIMES = ("paid_ms", "shipped_ms", "done_ms", "cancelled_ms")


def upgrade() -> None:
    op.add_column("shop_items", sa.Column("withdrawn_ms", sa.BigInteger))
    op.add_column("shop_orders", sa.Column("state", sa.String(10), nullable=False, server_default="placed"))
    op.add_column("shop_orders", sa.Column("note", sa.Text))
    for name in _TIMES:
        op.add_column("shop_orders", sa.Column(name, sa.BigInteger))
    op.create_index("ix_shop_orders_state_id", "shop_orders", ["state", "id"])
    op.create_table(
        "shop_stock_changes",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("item_id", _ID, sa.ForeignKey("shop_items.id", name="fk_stock_changes_item"), nullable=False),
        sa.Column("delta", sa.BigInteger, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("operation", sa.String(64)),
    )
    op.create_index("uq_shop_stock_changes_operation", "shop_stock_changes", ["operation"], unique=True)
    op.create_index("ix_shop_stock_changes_item_id_id", "shop_stock_changes", ["item_id", "id"])


def downgrade() -> None:
    op.drop_table("shop_stock_changes")
    op.drop_index("ix_shop_orders_state_id", "shop_orders")
    for name in (*_TIMES, "note", "state"):
        op.drop_column("shop_orders", name)
    op.drop_column("shop_items", "withdrawn_ms")
