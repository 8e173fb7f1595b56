"""Orders for operators: find them, move them from state to state, and download them.

The state changes by `UPDATE … WHERE state = <the state before>`. So of concurrent changes one succeeds, and a cancelled
order gives its stock back once, in the same transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET
from sqlalchemy import ColumnElement, bindparam, select, update

from plaza.core.async_engine import AsyncConnection
from plaza.core.clock import Clock
from plaza.core.csv_text import iso_time, to_csv, without_formula
from plaza.core.errors import NotFound
from plaza.core.paging import page_by_position
from plaza.core.sql import Sql
from plaza.core.sql_events import add_events
from plaza.core.sql_paging import MAX_ID, ids_in_table, newest_ids
from plaza.shop.events import STREAM, OrderCancelled, OrderDone, OrderEvent, OrderPaid, OrderShipped
from plaza.shop.items import Items
from plaza.shop.model import (
    NEXT_STATES,
    NoteChanged,
    OperatorOrder,
    OperatorOrdersPage,
    OrderChange,
    OrderLine,
    OrdersQuery,
    OrderState,
    WrongOrderState,
    price_text,
)
from plaza.shop.order_history import lines_of
from plaza.shop.tables import ITEMS, LINES, ORDERS

# Orders that one statement of a download reads.
EXPORT_BATCH: Final = 500
CSV_COLUMNS: Final = ("order", "placed", "customer", "state", "total", "currency", "items", "note", "changed")

_USER: Final = "user:"
_EVENTS: Final[Mapping[OrderState, type[OrderEvent]]] = {
    "paid": OrderPaid,
    "shipped": OrderShipped,
    "done": OrderDone,
    "cancelled": OrderCancelled,
}
_BY_IDS = select(ORDERS).where(ORDERS.c.id.in_(bindparam("ids", expanding=True)))
_ALL_OF_BUYER = select(ORDERS).where(ORDERS.c.buyer == bindparam("buyer")).order_by(ORDERS.c.id)


class OrderDesk:
    """Lists all orders, and changes their state and note."""

    def __init__(self, sql: Sql, items: Items, clock: Clock, currency: str) -> None:
        self._sql = sql
        self._currency = currency  # of orders that were stored without one
        self._items = items
        self._clock = clock

    async def page(self, query: OrdersQuery) -> OperatorOrdersPage:
        """Return a page of orders that match, newest first. Three short reads."""
        conditions, values = _conditions(query)
        name = f"all orders {sorted(values.items())}"
        ids = ids_in_table(self._sql, name, newest_ids(ORDERS.c.id, *conditions), **values)
        paged = await page_by_position(name, query, ids, self._read_many)
        return OperatorOrdersPage(paged.items, paged.pagination)

    async def read(self, id: int) -> OperatorOrder:
        """Return an order. Two short reads."""
        (order,) = await self._read_many([str(id)])
        if order is None:
            raise NotFound("There is no order with this number.", id=id)
        return order

    async def list_all(self, username: str) -> list[OperatorOrder]:
        """Return every order of a user, for export."""
        return await self._from_rows(await self._sql.fetch_all(_ALL_OF_BUYER, buyer=_USER + username))

    async def change(self, id: int, change: OrderChange) -> OperatorOrder:
        """Change the state or the note of an order. A state that it has already changes nothing. One transaction."""
        if change.note is not UNSET or change.state is not UNSET:
            async with self._sql.begin() as tx:
                if change.note is not UNSET:
                    await _require_note(tx, id, change)
                    await tx.execute(update(ORDERS).where(ORDERS.c.id == id).values(note=change.note.strip() or None))
                if change.state is not UNSET:
                    await self._move(tx, id, change.state)
        order = await self.read(id)
        if change.state == "cancelled":
            await self._items.reload_many(line.id for line in order.items)
        return order

    async def _move(self, tx: AsyncConnection, id: int, state: OrderState) -> None:
        """Bring an order to a state, from the states before it. Raises `WrongOrderState` in any other."""
        before = [earlier for earlier, following in NEXT_STATES.items() if state in following]
        now = self._clock.now_ms()
        moved = update(ORDERS).where(ORDERS.c.id == id, ORDERS.c.state.in_(before)).returning(ORDERS.c.buyer)
        buyer = (await tx.execute(moved.values({"state": state, f"{state}_ms": now}))).scalar() if before else None
        if buyer is not None:
            if state == "cancelled":
                await _give_back(tx, id)
            await add_events(tx, STREAM, [_EVENTS[state](id, customer_name(buyer))], now)
            return
        current = (await tx.execute(select(ORDERS.c.state).where(ORDERS.c.id == id))).scalar()
        if current is not None and current != state:
            raise WrongOrderState(f"The order is {current}. It cannot become {state}.", state=current)

    async def csv_chunks(self, query: OrdersQuery) -> AsyncIterator[str]:
        """Yield all orders that match as CSV, newest first. Two short reads per 500 orders."""
        conditions, values = _conditions(query)
        ids, before = newest_ids(ORDERS.c.id, *conditions), MAX_ID
        yield to_csv([CSV_COLUMNS])
        while found := await self._sql.fetch_all(ids, before=before, count=EXPORT_BATCH, **values):
            before = found[-1].id
            orders = await self._read_many([str(row.id) for row in found])
            yield to_csv(_csv_row(order) for order in orders if order is not None)

    async def _read_many(self, ids: Sequence[str]) -> list[OperatorOrder | None]:
        rows = await self._sql.fetch_all(_BY_IDS, ids=[int(id) for id in ids])
        orders = {str(order.id): order for order in await self._from_rows(rows)}
        return [orders.get(id) for id in ids]

    async def _from_rows(self, rows: Sequence[Any]) -> list[OperatorOrder]:
        lines = await lines_of(self._sql, rows)
        return [_from_row(row, lines[row.id], self._currency) for row in rows]


def customer_name(buyer: str) -> str | None:
    """Return the username of a buyer; None for a guest or a deleted user."""
    return buyer.removeprefix(_USER) if buyer.startswith(_USER) else None


async def _require_note(tx: AsyncConnection, id: int, change: OrderChange) -> None:
    """Lock an order, and raise `NoteChanged` if the change would overwrite what another operator wrote."""
    row = (await tx.execute(select(ORDERS.c.note).where(ORDERS.c.id == id).with_for_update())).one_or_none()
    if row is not None and change.overwrites(row.note or ""):
        raise NoteChanged("The note has changed since you loaded the order. Load it again.")


async def _give_back(tx: AsyncConnection, id: int) -> None:
    """Put the pieces of an order back in stock, in the order of items, as a checkout takes them."""
    lines = await tx.execute(select(LINES.c.item_id, LINES.c.qty).where(LINES.c.order_id == id))
    for line in sorted(lines.all()):
        changed = update(ITEMS).where(ITEMS.c.id == line.item_id)
        await tx.execute(changed.values(qty=ITEMS.c.qty + line.qty, version=ITEMS.c.version + 1))


def _conditions(query: OrdersQuery) -> tuple[list[ColumnElement[bool]], dict[str, Any]]:
    """Return the conditions of a query, and the values to bind."""
    values = {"state": query.state or "", "buyer": f"{_USER}{query.customer}" if query.customer else ""}
    values = {name: value for name, value in values.items() if value}
    return [ORDERS.c[name] == bindparam(name) for name in values], values


def _from_row(row: Any, lines: list[OrderLine], currency: str) -> OperatorOrder:
    return OperatorOrder(
        id=row.id,
        created_at=row.created_ms / 1000,
        customer=customer_name(row.buyer),
        items=lines,
        total=price_text(row.total),
        currency=row.currency or currency,
        state=row.state,
        note=row.note or "",
        paid_at=_seconds(row.paid_ms),
        shipped_at=_seconds(row.shipped_ms),
        done_at=_seconds(row.done_ms),
        cancelled_at=_seconds(row.cancelled_ms),
    )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _csv_row(order: OperatorOrder) -> tuple[str, ...]:
    times = (order.created_at, order.paid_at, order.shipped_at, order.done_at, order.cancelled_at)
    changed = iso_time(int(max(time for time in times if time is not None) * 1000))
    items = "; ".join(f"{line.qty} × {line.name}" for line in order.items)
    texts = (order.customer or "", order.state, order.total, order.currency, items, order.note)
    return str(order.id), iso_time(int(order.created_at * 1000)), *map(without_formula, texts), changed
