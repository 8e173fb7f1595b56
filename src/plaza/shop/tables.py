"""The SQL tables of items and orders. Valkey has only copies of items, and the carts.

Prices are integers, in hundredths: sums are exact in both databases, and no driver turns them into floats.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, String, Table, Text

from plaza.core.sql import metadata

METADATA = metadata()

# SQLite generates ids only for a column of type INTEGER.
_ID = BigInteger().with_variant(Integer, "sqlite")

ITEMS = Table(
    "shop_items",
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("name", String(200), nullable=False),
    Column("description", Text, nullable=False),
    Column("price", BigInteger, nullable=False),  # hundredths
    Column("qty", BigInteger, nullable=False),
    Column(
        "operation", String(64), unique=True
    ),  # the id of the request that created it: a repeated request creates no second item
    Column("version", BigInteger, nullable=False),  # rises with every change, so that caches know which copy is newer
    Column("media", Text),  # JSON: its pictures; null if none
    Column("created_ms", BigInteger),  # null if it is older than this column
    Column("withdrawn_ms", BigInteger),  # when it was taken off the shop; null while it is sold
    CheckConstraint("qty >= 0", name="qty"),
    CheckConstraint("price >= 0", name="price"),
)
ORDERS = Table(
    "shop_orders",
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("cart", String(40), nullable=False, unique=True),  # one cart makes one order
    Column("buyer", String(60), nullable=False),  # `user:<username>` or `guest:<session id>`
    Column("created_ms", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("currency", String(3)),  # null if the order is older than this column
    Column("operation", String(64)),  # the checkout that created it: a repeated one creates no second order
    Column("state", String(10), nullable=False, server_default="placed"),
    Column("note", Text),  # of operators; null without one
    *(Column(name, BigInteger) for name in ("paid_ms", "shipped_ms", "done_ms", "cancelled_ms")),  # when it came there
    Index("uq_shop_orders_operation", "operation", unique=True),
    Index(None, "buyer", "id"),
    Index(None, "state", "id"),
)
LINES = Table(
    "shop_order_lines",
    METADATA,
    Column("order_id", _ID, ForeignKey(ORDERS.c.id), primary_key=True),
    Column("item_id", _ID, ForeignKey(ITEMS.c.id), primary_key=True),
    Column("name", String(200), nullable=False),  # at the time of the order
    Column("price", BigInteger, nullable=False),  # at the time of the order
    Column("qty", Integer, nullable=False),
    CheckConstraint("qty > 0", name="qty"),
)
STOCK_CHANGES = Table(
    "shop_stock_changes",
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("item_id", _ID, ForeignKey(ITEMS.c.id), nullable=False),
    Column("delta", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("operation", String(64)),  # the request that made it: a repeated one changes the stock once
    Index("uq_shop_stock_changes_operation", "operation", unique=True),
    Index(None, "item_id", "id"),
)
