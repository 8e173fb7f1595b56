"""The events of the shop. They are added to the transaction that writes the rows."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

from plaza.core.events import EventData

STREAM: Final = "shop"

ItemId = Annotated[int, Meta(description="Id of the item.")]


class ItemEvent(EventData):
    subject: ClassVar[str] = "item"
    item: ItemId


class ItemCreated(ItemEvent):
    """An item was added to the shop."""

    type: ClassVar[str] = "item.created"


class ItemUpdated(ItemEvent):
    """An admin changed an item. Orders, which only lower its stock, do not count."""

    type: ClassVar[str] = "item.updated"


class OrderedItem(Struct, forbid_unknown_fields=True):
    """A line of an order."""

    item: ItemId
    qty: Annotated[int, Meta(description="Ordered pieces.")]


class OrderEvent(EventData):
    subject: ClassVar[str] = "order"
    order: Annotated[int, Meta(description="Id of the order.")]
    username: Annotated[str | None, Meta(description="The customer's username; null for a guest.")]


class OrderPlaced(OrderEvent):
    """A customer placed an order, and the stock was taken."""

    type: ClassVar[str] = "order.placed"
    items: Annotated[list[OrderedItem], Meta(description="What was ordered.")]


class OrderPaid(OrderEvent):
    """An order was paid."""

    type: ClassVar[str] = "order.paid"


class OrderShipped(OrderEvent):
    """An order was shipped."""

    type: ClassVar[str] = "order.shipped"


class OrderDone(OrderEvent):
    """An order was completed."""

    type: ClassVar[str] = "order.done"


class OrderCancelled(OrderEvent):
    """An order was cancelled, and its items are in stock again."""

    type: ClassVar[str] = "order.cancelled"


EVENTS = (ItemCreated, ItemUpdated, OrderPlaced, OrderPaid, OrderShipped, OrderDone, OrderCancelled)
