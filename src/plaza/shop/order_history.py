"""Orders in SQL: the orders of a user or of a guest's session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, select, update

from plaza.core.errors import NotFound
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import wait_for_username_locks
from plaza.sessions.model import Visit
from plaza.shop.model import Order, OrderLine, OrdersPage, price_text
from plaza.shop.tables import LINES, ORDERS

_HAS_BUYER = ORDERS.c.buyer == bindparam("buyer")
_IDS_OF_BUYER = newest_ids(ORDERS.c.id, _HAS_BUYER)
_OF_BUYER = select(ORDERS).where(ORDERS.c.id == bindparam("id"), _HAS_BUYER)
_BY_IDS = select(ORDERS).where(ORDERS.c.id.in_(bindparam("ids", expanding=True)))
_BY_CART = select(ORDERS).where(ORDERS.c.cart == bindparam("cart"))
_BY_OPERATION = select(ORDERS).where(
    ORDERS.c.operation == bindparam("operation"), ORDERS.c.created_ms > bindparam("since_ms")
)
_LINES_OF = select(LINES).where(LINES.c.order_id.in_(bindparam("orders", expanding=True))).order_by(LINES.c.item_id)


class OrderHistory:
    """Reads orders, and changes their buyer when an account is renamed or deleted."""

    def __init__(self, sql: Sql, currency: str) -> None:
        self._sql = sql
        self.currency = currency  # of new orders, and of those that were stored without one

    async def find_by_cart(self, cart: str) -> Order | None:
        """Return the order of a cart, if it was ordered."""
        orders = await self._with_lines(await self._sql.fetch_all(_BY_CART, cart=cart))
        return orders[0] if orders else None

    async def find_by_operation(self, operation: str, since_ms: int) -> Order | None:
        """Return the order that a checkout created since a time, if it did."""
        orders = await self._with_lines(
            await self._sql.fetch_all(_BY_OPERATION, operation=operation, since_ms=since_ms)
        )
        return orders[0] if orders else None

    async def read(self, visit: Visit, id: int) -> Order:
        """Return one of the caller's orders."""
        rows = await self._sql.fetch_all(_OF_BUYER, id=id, buyer=_buyer(visit))
        if not rows:
            raise NotFound("You have no order with this number.", id=id)
        return (await self._with_lines(rows))[0]

    async def page(self, visit: Visit, page: Page) -> OrdersPage:
        """Return a page of the caller's orders, newest first: the user's, or those of a guest's session."""
        buyer = _buyer(visit)
        name = f"orders of {buyer}"
        ids = ids_in_table(self._sql, name, _IDS_OF_BUYER, buyer=buyer)
        paged = await page_by_position(name, page, ids, self._read_many)
        return OrdersPage(paged.items, paged.pagination)

    async def _read_many(self, ids: Sequence[str]) -> list[Order | None]:
        numbers = [int(id) for id in ids]
        rows = await self._sql.fetch_all(_BY_IDS, ids=numbers)
        orders = {order.id: order for order in await self._with_lines(rows)}
        return [orders.get(id) for id in numbers]

    async def _with_lines(self, rows: Sequence[Any]) -> list[Order]:
        lines = await lines_of(self._sql, rows)
        return [
            Order(
                row.id,
                row.created_ms / 1000,
                lines[row.id],
                price_text(row.total),
                row.currency or self.currency,
                row.state,
            )
            for row in rows
        ]

    async def change_buyer(self, old: str, new: str | None) -> None:
        """Replace the buyer of a user's orders, or remove it with the notes. The orders stay: sums must add up."""
        values = {"buyer": "", "note": None} if new is None else {"buyer": f"user:{new}"}
        await wait_for_username_locks(self._sql, old)
        async with self._sql.begin() as tx:
            await tx.execute(update(ORDERS).where(ORDERS.c.buyer == f"user:{old}").values(values))


def _buyer(visit: Visit) -> str:
    return f"guest:{visit.id}" if visit.replaced else visit.buyer


async def lines_of(sql: Sql, rows: Sequence[Any]) -> dict[int, list[OrderLine]]:
    """Return the lines of orders by their ids. Lines never change, so a second query is safe."""
    lines: dict[int, list[OrderLine]] = {row.id: [] for row in rows}
    for line in await sql.fetch_all(_LINES_OF, orders=list(lines)) if lines else ():
        lines[line.order_id].append(order_line(line.item_id, line.name, line.price, line.qty))
    return lines


def order_line(id: int, name: str, price: int, qty: int) -> OrderLine:
    """Return one line of an order; the price is in hundredths."""
    return OrderLine(id, name, price_text(price), qty, price_text(price * qty))
