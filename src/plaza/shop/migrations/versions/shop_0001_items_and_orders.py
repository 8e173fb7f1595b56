"""Items, orders and their lines."""

import sqlalchemy as sa
from alembic import op

revision = "shop_0001"
down_revision = None
branch_labels = ("shop",)
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "shop_items",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("qty", sa.BigInteger, nullable=False),
        sa.Column("operation", sa.String(64)),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("operation", name="uq_shop_items_operation"),
        sa.CheckConstraint("qty >= 0", name="ck_shop_items_qty"),
        sa.CheckConstraint("price >= 0", name="ck_shop_items_price"),
    )
    op.create_table(
        "shop_orders",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("cart", sa.String(40), nullable=False),
        sa.Column("buyer", sa.String(60), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("cart", name="uq_shop_orders_cart"),
    )
    op.create_index("ix_shop_orders_buyer_id", "shop_orders", ["buyer", "id"])
    op.create_table(
        "shop_order_lines",
        sa.Column("order_id", _ID, sa.ForeignKey("shop_orders.id", name="fk_lines_order"), primary_key=True),
        sa.Column("item_id", _ID, sa.ForeignKey("shop_items.id", name="fk_lines_item"), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("qty", sa.Integer, nullable=False),
        sa.CheckConstraint("qty > 0", name="ck_shop_order_lines_qty"),
    )


def downgrade() -> None:
    op.drop_table("shop_order_lines")
    op.drop_table("shop_orders")
    op.drop_table("shop_items")
