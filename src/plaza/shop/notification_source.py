"""The shop's part of notifications: a customer's order was placed, and came to another state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import select

from plaza.core.events import Event
from plaza.core.notification_source import Absence, Activity, GroupName, NotificationSource, NotificationSubject
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sql import Sql
from plaza.shop.events import OrderCancelled, OrderDone, OrderPaid, OrderPlaced, OrderShipped
from plaza.shop.model import price_text
from plaza.shop.money import format_money
from plaza.shop.tables import ORDERS

# What happened to an order, and the column with its time.
_TIMES: Final = {
    "@placed": "created_ms",
    "@paid": "paid_ms",
    "@shipped": "shipped_ms",
    "@done": "done_ms",
    "@cancelled": "cancelled_ms",
}
_USER: Final = "user:"


class OrderNotifications(NotificationSource):
    """The orders of users. A guest has no notifications."""

    stream: Final = "shop"
    kinds: Final = ("order",)
    events: Final = (OrderPlaced, OrderPaid, OrderShipped, OrderDone, OrderCancelled)

    def __init__(self, sql: Sql, currency: str) -> None:
        self._sql = sql
        self._currency = currency  # of orders that were stored without one

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return what happened to the orders of users. One statement."""
        told = [(int(event.data["order"]), f"@{event.type.removeprefix('order.')}") for event in events]
        orders = await self._orders([id for id, _ in told])
        return [_activity(orders[id], action) for id, action in told if id in orders and _is_of_user(orders[id])]

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when orders were placed, paid, and so on. One statement."""
        orders = await self._orders([_order_id(one.group.subject) for one in activities])
        found = [(one, orders.get(_order_id(one.group.subject))) for one in activities]
        return [
            getattr(row, _TIMES.get(one.actor, ""), None) if row is not None and _is_buyer(row, one) else None
            for one, row in found
        ]

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> list[NotificationSubject | Absence]:
        """Return orders with their totals. One statement."""
        orders = await self._orders([_order_id(subject) for _, subject in subjects])
        return [_described(orders.get(_order_id(subject)), self._currency) for _, subject in subjects]

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield what happened to the orders since a time."""
        last = 0
        while rows := await self._sql.fetch_all(
            select(ORDERS)
            .where(ORDERS.c.id > last, ORDERS.c.created_ms >= since_ms)
            .order_by(ORDERS.c.id)
            .limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            yield _activities(rows)

    async def _orders(self, ids: Sequence[int]) -> dict[int, Any]:
        return {row.id: row for row in await self._sql.fetch_all(select(ORDERS).where(ORDERS.c.id.in_(list(ids))))}


def _activities(rows: Sequence[Any]) -> list[Activity]:
    """Return everything that happened to the orders of users."""
    return [
        _activity(row, action)
        for row in rows
        if _is_of_user(row)
        for action, column in _TIMES.items()
        if getattr(row, column) is not None
    ]


def _activity(row: Any, action: str) -> Activity:
    return Activity(GroupName(row.buyer.removeprefix(_USER), "order", f"order:{row.id}"), action)


def _is_of_user(row: Any) -> bool:
    return bool(row.buyer.startswith(_USER))


def _is_buyer(row: Any, activity: Activity) -> bool:
    return bool(row.buyer == _USER + activity.group.recipient)


def _order_id(subject: str) -> int:
    return int(subject.rpartition(":")[2])


def _described(row: Any, currency: str) -> NotificationSubject | Absence:
    if row is None:
        return Absence.GONE
    total = format_money(price_text(row.total), row.currency or currency)
    return NotificationSubject("order", str(row.id), f"Order {row.id}: {total}", f"/app/shop/orders/{row.id}")
