"""The shop's part of notifications: a customer's order was placed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import select

from plaza.core.events import Event
from plaza.core.notification_source import Absence, Activity, GroupName, NotificationSource, NotificationSubject
from plaza.core.search_source import SCAN_BATCH
from plaza.core.sql import Sql
from plaza.shop.events import OrderPlaced
from plaza.shop.model import price_text
from plaza.shop.tables import ORDERS

_PLACED: Final = "@placed"
_USER: Final = "user:"


class OrderNotifications(NotificationSource):
    """The orders of users. A guest has no notifications."""

    stream: Final = "shop"
    kinds: Final = ("order",)
    events: Final = (OrderPlaced,)

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    async def activities(self, events: Sequence[Event]) -> list[Activity]:
        """Return the orders of users. One statement."""
        orders = await self._orders([int(event.data["order"]) for event in events])
        return _placed(list(orders.values()))

    async def times(self, activities: Sequence[Activity]) -> list[int | None]:
        """Return when orders were placed. One statement."""
        orders = await self._orders([_order_id(one.group.subject) for one in activities])
        found = [(one, orders.get(_order_id(one.group.subject))) for one in activities]
        return [
            int(row.created_ms) if row is not None and row.buyer == _USER + one.group.recipient else None
            for one, row in found
        ]

    async def describe(
        self, recipient: str, subjects: Sequence[tuple[str, str]]
    ) -> list[NotificationSubject | Absence]:
        """Return orders with their totals. One statement."""
        orders = await self._orders([_order_id(subject) for _, subject in subjects])
        return [_described(orders.get(_order_id(subject))) for _, subject in subjects]

    async def all_activities(self, since_ms: int) -> AsyncIterator[Sequence[Activity]]:
        """Yield the orders since a time."""
        last = 0
        while rows := await self._sql.fetch_all(
            select(ORDERS)
            .where(ORDERS.c.id > last, ORDERS.c.created_ms >= since_ms)
            .order_by(ORDERS.c.id)
            .limit(SCAN_BATCH)
        ):
            last = rows[-1].id
            yield _placed(rows)

    async def _orders(self, ids: Sequence[int]) -> dict[int, Any]:
        return {row.id: row for row in await self._sql.fetch_all(select(ORDERS).where(ORDERS.c.id.in_(list(ids))))}


def _placed(rows: Sequence[Any]) -> list[Activity]:
    """Return the orders of users as activities."""
    return [
        Activity(GroupName(row.buyer.removeprefix(_USER), "order", f"order:{row.id}"), _PLACED)
        for row in rows
        if row.buyer.startswith(_USER)
    ]


def _order_id(subject: str) -> int:
    return int(subject.rpartition(":")[2])


def _described(row: Any) -> NotificationSubject | Absence:
    if row is None:
        return Absence.GONE
    return NotificationSubject("order", str(row.id), f"Order {row.id}: {price_text(row.total)}", "/app/shop/orders")
