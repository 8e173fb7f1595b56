"""The record: items, and what was ordered. Valkey only holds copies of items and what people have in mind to buy.

Prices are whole hundredths: sums are exact in both databases, and no driver turns them into floats on the way.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, String, Table, Text

from plaza.core.sql import metadata

METADATA = metadata()

# SQLite counts up only in a column that is called INTEGER.
_ID = BigInteger().with_variant(Integer, "sqlite")

ITEMS = Table(
    "shop_items",
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("name", String(200), nullable=False),
    Column("description", Text, nullable=False),
    Column("price", BigInteger, nullable=False),  # hundredths
    Column("qty", BigInteger, nullable=False),
    Column("operation", String(64), unique=True),  # what created it: the same request again makes no second item
    Column("version", BigInteger, nullable=False),  # rises with every change, so that copies know which is newer
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
    Index(None, "buyer", "id"),
)
LINES = Table(
    "shop_order_lines",
    METADATA,
    Column("order_id", _ID, ForeignKey(ORDERS.c.id), primary_key=True),
    Column("item_id", _ID, ForeignKey(ITEMS.c.id), primary_key=True),
    Column("name", String(200), nullable=False),  # as it was called then
    Column("price", BigInteger, nullable=False),  # as it was then
    Column("qty", Integer, nullable=False),
    CheckConstraint("qty > 0", name="qty"),
)
