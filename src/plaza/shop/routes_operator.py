"""The shop over HTTP, for operators: orders, and all items with their stock."""

from __future__ import annotations

from collections.abc import AsyncIterator

from plaza.core import csv_text
from plaza.core.http.access import ADMIN
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.shop.item_desk import ItemDesk
from plaza.shop.model import (
    AllItemsQuery,
    Item,
    ItemId,
    ItemsPage,
    NoteChanged,
    OperatorOrder,
    OperatorOrdersPage,
    OrderChange,
    OrderId,
    OrdersQuery,
    OutOfStock,
    StockChange,
    WrongOrderState,
)
from plaza.shop.order_desk import OrderDesk

route = Routes("shop", prefix="/admin")


@route.get("/orders", access=ADMIN)
async def list_all_orders(query: OrdersQuery, desk: OrderDesk) -> OperatorOrdersPage:
    """List the orders of all customers, newest first, by state or customer."""
    return await desk.page(query)


@route.get("/orders.csv", access=ADMIN, media_type=csv_text.MEDIA_TYPE, limit_first=True)
async def export_orders(query: OrdersQuery, desk: OrderDesk) -> Response[str]:
    """Download all orders that match, newest first. `limit` and `cursor` are ignored."""
    return orders_download(desk, query)


def orders_download(desk: OrderDesk, query: OrdersQuery) -> Response[str]:
    """Return orders as a CSV file, sent as it is read."""
    chunks: AsyncIterator[str] = desk.csv_chunks(query)
    return Response(chunks, headers=[("content-disposition", 'attachment; filename="orders.csv"')])


@route.get("/orders/{id}", access=ADMIN)
async def get_any_order(id: OrderId, desk: OrderDesk) -> OperatorOrder:
    """Get an order of any customer."""
    return await desk.read(id)


@route.patch(
    "/orders/{id}",
    access=ADMIN,
    logged_fields=("state",),
    raises=[NoteChanged, WrongOrderState],
    example={"state": "paid"},
)
async def update_order(id: OrderId, body: OrderChange, desk: OrderDesk) -> OperatorOrder:
    """Update the state or the note of an order. A cancelled order gives its stock back, once."""
    return await desk.change(id, body)


@route.get("/items", access=ADMIN)
async def list_all_items(query: AllItemsQuery, desk: ItemDesk) -> ItemsPage:
    """List all items, also withdrawn ones, newest first; or those with a text in their name."""
    return await desk.page(query)


@route.get("/items/{id}", access=ADMIN)
async def get_any_item(id: ItemId, desk: ItemDesk) -> Item:
    """Get an item, also a withdrawn one, without counting a view."""
    return await desk.read(id)


@route.post(
    "/items/{id}/stock",
    access=ADMIN,
    idempotent=True,
    logged_fields=("delta",),
    raises=[OutOfStock],
    example={"delta": 5},
)
async def change_stock(id: ItemId, body: StockChange, request: Request, desk: ItemDesk) -> Item:
    """Change the stock of an item by a number of pieces. Sales at the same time count too."""
    return await desk.change_stock(id, body.delta, request.row_operation)
