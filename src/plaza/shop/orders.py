"""Checkout: one SQL transaction takes the stock and writes the order; the cart's id makes it happen once.

A cart gets an id when it is first checked out and keeps it until what was ordered has left it. The order carries that
id in a unique column. So a double click, a repeated request or a crash between SQL and Valkey finds the order already
there, gives it again and empties the cart, which may be repeated too. Stock is taken by `UPDATE … WHERE qty >= n`:
however many check out at once, the last piece is sold once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plaza.caching.row_store import RowData
from plaza.core.clock import Clock
from plaza.core.errors import Unauthenticated
from plaza.core.paging import Page, page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_paging import ids_in_table, newest_ids
from plaza.core.username_locks import lock_username, wait_for_username_locks
from plaza.sessions.service import Sessions, Visit
from plaza.shop.items import Items, as_data
from plaza.shop.keys import of_account, of_session
from plaza.shop.model import EmptyCart, Order, OrderLine, OrdersPage, OutOfStock, SessionMoved, lines_of, price_text
from plaza.shop.tables import ITEMS, LINES, ORDERS

# A second click that comes this much later, onto the emptied cart, gets the order that the first one made.
AGAIN_SECONDS: Final = 60

_HAS_BUYER = ORDERS.c.buyer == bindparam("buyer")
_OF_BUYER = newest_ids(ORDERS.c.id, _HAS_BUYER)
_ALL_OF_BUYER = select(ORDERS).where(_HAS_BUYER).order_by(ORDERS.c.id)
_BY_IDS = select(ORDERS).where(ORDERS.c.id.in_(bindparam("ids", expanding=True)))
_BY_CART = select(ORDERS).where(ORDERS.c.cart == bindparam("cart"))
_LINES_OF = select(LINES).where(LINES.c.order_id.in_(bindparam("orders", expanding=True))).order_by(LINES.c.item_id)


class _AlreadyOrdered(Exception):
    """The cart has become an order already."""


class Orders:
    """Turns carts into orders."""

    def __init__(self, sql: Sql, sessions: Sessions, items: Items, clock: Clock) -> None:
        self._sql = sql
        self._sessions = sessions
        self._functions = sessions.functions
        self._items = items
        self._clock = clock
        sessions.handed_over = self.finish

    async def check_out(self, cookie: str | None) -> tuple[Visit, Order]:
        """Order what is in the cart, at the prices of now. Two round trips, the transaction, and one per item."""
        visit, reply = await self._sessions.visit(cookie, "shop_check_out", secrets.token_hex(16))
        if visit.moved:
            raise SessionMoved("Log in is under way: ask again with the new cookie.")
        if reply[0] == "account":
            assert visit.user is not None
            keys = of_account(visit.user)
            reply = await self._functions.run("shop_check_out_account", keys, secrets.token_hex(16))
            if not reply:
                raise Unauthenticated("The session has ended.")
        cart, last, when, *flat = reply
        wanted = lines_of(flat)
        if not wanted:
            return visit, await self._again(last, when)
        try:
            order, changed = await self._order(visit, cart, wanted)
        except _AlreadyOrdered:
            order = await self._by_cart(cart)
            await self._items.reread(line.id for line in order.items)
        else:
            await self._items.refresh(changed)
        # Last: while the cart is full, whoever asks again does over what a crash has left undone.
        await self._empty(visit, cart, order)
        return visit, order

    async def _again(self, last: str, when: str) -> Order:
        if last and self._clock.now_s() - float(when) <= AGAIN_SECONDS:
            return await self._by_cart(last)
        raise EmptyCart("There is nothing in the cart.")

    async def _order(self, visit: Visit, cart: str, wanted: dict[int, int]) -> tuple[Order, list[RowData]]:
        now = self._clock.now_ms()
        async with self._sql.begin() as tx:
            if visit.user is not None:
                await lock_username(tx, self._functions.valkey, visit.user, visit.since_ms)
            id = await self._claim(tx, visit.buyer, cart, now)
            # Always in the order of ids: two carts with the same items never wait for each other in a circle.
            taken = [(await _take(tx, item, wanted[item]), wanted[item]) for item in sorted(wanted)]
            lines = [
                {"order_id": id, "item_id": row.id, "name": row.name, "price": row.price, "qty": qty}
                for row, qty in taken
            ]
            await tx.execute(insert(LINES), lines)
            total = sum(row.price * qty for row, qty in taken)
            await tx.execute(update(ORDERS).where(ORDERS.c.id == id).values(total=total))
        order = Order(
            id, now / 1000, [_line(row.id, row.name, row.price, qty) for row, qty in taken], price_text(total)
        )
        return order, [as_data(row) for row, _ in taken]

    async def _claim(self, tx: AsyncConnection, buyer: str, cart: str, now: int) -> int:
        """The order of a cart, if there is none yet. Of two at once the second waits here for the first."""
        values = {"cart": cart, "buyer": buyer, "created_ms": now, "total": 0}
        statement = self._sql.insert(ORDERS).values(values).on_conflict_do_nothing(index_elements=["cart"])
        id = (await tx.execute(statement.returning(ORDERS.c.id))).scalar()
        if id is None:
            raise _AlreadyOrdered
        return int(id)

    async def _empty(self, visit: Visit, cart: str, order: Order) -> None:
        ordered = [part for line in order.items for part in (line.id, line.qty)]
        now = self._sessions.now()
        if visit.user is None:
            await self._functions.run("shop_ordered", of_session(visit.token), visit.token, cart, now, *ordered)
        else:
            keys = of_account(visit.user)
            await self._functions.run("shop_ordered_account", keys, visit.user, cart, now, *ordered)

    async def finish(self, token: str, cart: str) -> None:
        """A guest logs in whose cart was being checked out: if it has become an order, it is not for sale again."""
        order = await self._find(cart)
        if order is not None:
            await self._items.reread(line.id for line in order.items)
            await self._empty(Visit(token, None, 0, 0), cart, order)

    async def _by_cart(self, cart: str) -> Order:
        order = await self._find(cart)
        assert order is not None, "an order is never removed"
        return order

    async def _find(self, cart: str) -> Order | None:
        found = await self._with_lines(await self._sql.fetch_all(_BY_CART, cart=cart))
        return found[0] if found else None

    async def page(self, visit: Visit, page: Page) -> OrdersPage:
        """One's own orders, the newest first: a person's, or those of a guest's session."""
        buyer = f"guest:{visit.id}" if visit.moved else visit.buyer
        name = f"orders of {buyer}"
        paged = await page_by_position(
            name, page, ids_in_table(self._sql, name, _OF_BUYER, buyer=buyer), self._read_many
        )
        return OrdersPage(paged.items, paged.pagination)

    async def _read_many(self, ids: Sequence[str]) -> list[Order | None]:
        wanted = [int(id) for id in ids]
        orders = {order.id: order for order in await self._with_lines(await self._sql.fetch_all(_BY_IDS, ids=wanted))}
        return [orders.get(id) for id in wanted]

    async def _with_lines(self, rows: Sequence[Any]) -> list[Order]:
        """Whole orders. Their lines never change, so they need not be of the same moment."""
        lines: dict[int, list[OrderLine]] = {row.id: [] for row in rows}
        for line in await self._sql.fetch_all(_LINES_OF, orders=list(lines)) if lines else ():
            lines[line.order_id].append(_line(line.item_id, line.name, line.price, line.qty))
        return [Order(row.id, row.created_ms / 1000, lines[row.id], price_text(row.total)) for row in rows]

    async def of_person(self, username: str) -> list[Order]:
        """Every order of a person, for export."""
        return await self._with_lines(await self._sql.fetch_all(_ALL_OF_BUYER, buyer=f"user:{username}"))

    async def hand_over(self, old: str, new: str | None) -> None:
        """Put a person's new name on their orders, or none. The orders stay: stock and sums must add up."""
        buyer = "" if new is None else f"user:{new}"
        await wait_for_username_locks(self._sql, old)
        async with self._sql.begin() as tx:
            await tx.execute(update(ORDERS).where(ORDERS.c.buyer == f"user:{old}").values(buyer=buyer))


async def _take(tx: AsyncConnection, item: int, qty: int) -> Any:
    """Take pieces of an item out of stock, if there are as many. Returns its row as it is then."""
    statement = (
        update(ITEMS)
        .where(ITEMS.c.id == item, ITEMS.c.qty >= qty)
        .values(qty=ITEMS.c.qty - qty, version=ITEMS.c.version + 1)
        .returning(ITEMS)
    )
    row = (await tx.execute(statement)).one_or_none()
    if row is None:
        left = (await tx.execute(select(ITEMS.c.qty).where(ITEMS.c.id == item))).scalar() or 0
        raise OutOfStock("There is not enough of an item left.", id=item, wanted=qty, left=left)
    return row


def _line(id: int, name: str, price: int, qty: int) -> OrderLine:
    return OrderLine(id, name, price_text(price), qty, price_text(price * qty))
