"""Checkout: one SQL transaction takes the stock and writes the order.

A cart gets an id at the start of its checkout and keeps it until the ordered lines are removed. The order has that id
in a unique column. So a double click, a repeated request or a crash between SQL and Valkey finds the existing order,
returns it and empties the cart. A failover can lose that id, or bring ordered lines back. So the order also has the id
of a request with an `Idempotency-Key`, by which a repeated one finds it. Stock is taken by `UPDATE … WHERE qty >= n`,
so concurrent checkouts never oversell.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import insert, select, update

from plaza.caching.row_store import RowData
from plaza.core.async_engine import AsyncConnection
from plaza.core.clock import Clock
from plaza.core.errors import Unauthenticated
from plaza.core.idempotency import STORED_MS
from plaza.core.number_parsing import parse_float
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.sql_idempotency import release_operation
from plaza.core.username_locks import lock_username
from plaza.sessions.model import SessionClient, SessionReplaced, Visit
from plaza.sessions.session_finder import SessionCall, SessionFinder
from plaza.shop.events import STREAM, OrderedItem, OrderPlaced
from plaza.shop.items import Items, row_data
from plaza.shop.keys import account_keys
from plaza.shop.model import (
    EmptyCart,
    NewOrder,
    Order,
    OutOfStock,
    PriceChanged,
    cart_lines,
    hundredths,
    price_text,
)
from plaza.shop.order_history import OrderHistory, order_line
from plaza.shop.tables import ITEMS, LINES, ORDERS

# A second checkout within this time, of the emptied cart, returns the order of the first one.
REPEAT_SECONDS: Final = 60


class _AlreadyOrdered(Exception):
    """The cart was already ordered."""


class _OpenCheckout(Struct, frozen=True):
    """A cart whose checkout has begun, and the cart that its owner ordered last."""

    cart: str
    last_cart: str
    last_at: str
    lines: list[str]

    @classmethod
    def from_lua(cls, reply: list[Any]) -> _OpenCheckout:
        return cls(reply[0], reply[1], reply[2], reply[3:])


_ANY_TOTAL: Final = NewOrder()


class Checkout:
    """Turns carts into orders."""

    def __init__(self, sql: Sql, sessions: SessionFinder, items: Items, orders: OrderHistory, clock: Clock) -> None:
        self._sql = sql
        self._sessions = sessions
        self._functions = sessions.store.functions
        self._items = items
        self._orders = orders
        self._clock = clock

    async def check_out(
        self, cookie: str | SessionClient | None, wanted: NewOrder = _ANY_TOTAL, operation: str | None = None
    ) -> tuple[Visit, Order]:
        """Order the cart at current prices. Two round trips, the transaction, and one round trip per item.

        With an expected total the order is only made if the cart still costs that much. The same operation again
        returns the same order; with one, a short read more.
        """
        visit, reply = await self._sessions.visit(cookie, self._start)
        if visit.replaced:
            raise SessionReplaced("A login has replaced this session. Repeat the request with the new cookie.")
        if reply[0] == "account":
            assert visit.user is not None
            if reply[1] == "1":
                await self._sessions.store.settle(visit.token)
            reply = await self._start_for_account(visit.user)
        checkout = _OpenCheckout.from_lua(reply)
        order = await self._earlier_order(operation)
        if order is None:
            order = await self._order_cart(visit, checkout, wanted, operation)
        elif parse_float(checkout.last_at) < order.created_at:  # Valkey lost that its lines were ordered
            await self._items.reload_many(line.id for line in order.items)
            await self._finish(visit, checkout.cart, order)
        return visit, order

    async def _order_cart(
        self, visit: Visit, checkout: _OpenCheckout, wanted: NewOrder, operation: str | None
    ) -> Order:
        """Order the lines of a cart, unless it was ordered, and remove them from it. Return its order."""
        quantities = cart_lines(checkout.lines)
        if not quantities and checkout.lines:
            raise EmptyCart("No line of the cart can be ordered. Remove the invalid lines.")
        if not quantities:
            return await self._repeated_order(checkout)
        try:
            order, sold = await self._order(visit, checkout.cart, quantities, wanted, operation)
        except _AlreadyOrdered:
            order = await self._earlier_order(operation) or await self._existing_order(checkout.cart)
            await self._items.reload_many(line.id for line in order.items)
        else:
            await self._items.refresh(sold)
        # Last: as long as the cart has its lines, a repeated request redoes the steps that a crash has skipped.
        await self._finish(visit, checkout.cart, order)
        return order

    async def finish_for_guest(self, token: str, cart: str) -> None:
        """Remove from the account's cart what a guest ordered before the login, if the order was written."""
        order = await self._orders.find_by_cart(cart)
        if order is not None:
            await self._items.reload_many(line.id for line in order.items)
            await self._finish(Visit(token, None, 0, 0), cart, order)

    async def _start(self, call: SessionCall) -> list[Any]:
        args = (*call.args, secrets.token_hex(16))
        # Not deferred: on a cluster the account's cart must have the changes by other services.
        reply: list[Any] = await self._functions.run("shop_start_checkout", call.keys, *args)
        return reply

    async def _start_for_account(self, username: str) -> list[Any]:
        keys = account_keys(username)
        reply: list[Any] = await self._functions.run("shop_start_account_checkout", keys, secrets.token_hex(16))
        if not reply:
            raise Unauthenticated("The session has ended. Log in again.")
        return reply

    async def _finish(self, visit: Visit, cart: str, order: Order) -> None:
        """Remove the ordered lines from the cart."""
        ordered = [part for line in order.items for part in (line.id, line.qty)]
        args: list[str | int] = [cart, self._sessions.store.now(), *ordered]
        if visit.user is None:
            keys = self._sessions.store.keys(visit.token)
            await self._functions.run("shop_finish_checkout", keys, visit.token, *args)
        else:
            keys = account_keys(visit.user)
            await self._functions.run("shop_finish_account_checkout", keys, visit.user, *args)

    async def _repeated_order(self, checkout: _OpenCheckout) -> Order:
        order = None
        if checkout.last_cart and self._clock.now_s() - float(checkout.last_at) <= REPEAT_SECONDS:
            order = await self._orders.find_by_cart(checkout.last_cart)
        if order is None:
            raise EmptyCart("The cart is empty. Add an item first.")
        return order

    async def _earlier_order(self, operation: str | None) -> Order | None:
        """Return the order of an earlier run of the request."""
        if operation is None:
            return None
        return await self._orders.find_by_operation(operation, self._clock.now_ms() - STORED_MS)

    async def _existing_order(self, cart: str) -> Order:
        order = await self._orders.find_by_cart(cart)
        assert order is not None, "orders are never deleted"
        return order

    async def _order(
        self, visit: Visit, cart: str, quantities: dict[int, int], wanted: NewOrder, operation: str | None
    ) -> tuple[Order, list[RowData]]:
        """Take the stock and write the order. Return it with the rows of its items, as they are then."""
        now = self._clock.now_ms()
        async with self._sql.begin() as tx:
            if visit.user is not None:
                await lock_username(tx, self._functions.valkey, visit.user, visit.since_ms)
            sold = await _take_all(tx, cart, quantities)
            total = sum(row.price * qty for row, qty in sold)
            _require_total(total, wanted)
            # Last: PostgreSQL does not reuse the id of an order that is rolled back.
            values = {"cart": cart, "buyer": visit.buyer, "created_ms": now, "total": total, "operation": operation}
            values["currency"] = self._orders.currency
            id = await self._insert_order(tx, values)
            lines = [
                {"order_id": id, "item_id": row.id, "name": row.name, "price": row.price, "qty": qty}
                for row, qty in sold
            ]
            await tx.execute(insert(LINES), lines)
            ordered = [OrderedItem(row.id, qty) for row, qty in sold]
            await add_events(tx, STREAM, [OrderPlaced(id, visit.user, ordered)], now)
        items = [order_line(row.id, row.name, row.price, qty) for row, qty in sold]
        order = Order(id, now / 1000, items, price_text(total), self._orders.currency)
        return order, [row_data(row) for row, _ in sold]

    async def _insert_order(self, tx: AsyncConnection, values: dict[str, Any]) -> int:
        """Insert the order of a cart, unless a concurrent checkout of the cart or of the request has inserted it."""
        await release_operation(tx, ORDERS, values["operation"], values["created_ms"])
        statement = self._sql.insert(ORDERS).values(values).on_conflict_do_nothing()
        id = (await tx.execute(statement.returning(ORDERS.c.id))).scalar()
        if id is None:
            raise _AlreadyOrdered
        return int(id)


def _require_total(total: int, wanted: NewOrder) -> None:
    """Raise `PriceChanged` if the customer saw another total."""
    if wanted.expected_total is not None and hundredths(wanted.expected_total) != total:
        detail = "The cart costs something else now. Read it again and confirm the new total."
        raise PriceChanged(detail, expected_total=wanted.expected_total, total=price_text(total))


async def _take_all(tx: AsyncConnection, cart: str, quantities: dict[int, int]) -> list[tuple[Any, int]]:
    """Take the stock of every line. Return the rows of the items, as they are then, with their quantities.

    Of two concurrent checkouts of a cart the second waits here for the first, and then finds its order.
    """
    sold = []
    for item in sorted(quantities):  # in the order of ids, so that two carts with the same items cannot deadlock
        row = await _take_stock(tx, item, quantities[item])
        if row is None:
            await _refuse_ordered(tx, cart)
            is_sold = (ITEMS.c.id == item) & ITEMS.c.withdrawn_ms.is_(None)
            left = (await tx.execute(select(ITEMS.c.qty).where(is_sold))).scalar() or 0
            detail = "There is not enough of an item left. Reduce its quantity."
            if not left:
                detail = "An item is sold out, or not sold any more. Remove it from the cart."
            raise OutOfStock(detail, id=item, wanted=quantities[item], left=left)
        sold.append((row, quantities[item]))
    await _refuse_ordered(tx, cart)
    return sold


async def _refuse_ordered(tx: AsyncConnection, cart: str) -> None:
    if (await tx.execute(select(ORDERS.c.id).where(ORDERS.c.cart == cart))).scalar() is not None:
        raise _AlreadyOrdered


async def _take_stock(tx: AsyncConnection, item: int, qty: int) -> Any:
    """Take pieces of an item out of stock. Return its row as it is then, or None if there are not enough."""
    statement = (
        update(ITEMS)
        .where(ITEMS.c.id == item, ITEMS.c.qty >= qty, ITEMS.c.withdrawn_ms.is_(None))
        .values(qty=ITEMS.c.qty - qty, version=ITEMS.c.version + 1)
        .returning(ITEMS)
    )
    return (await tx.execute(statement)).one_or_none()
