"""Each operation of the shop emits its event; one that changes nothing emits none."""

from __future__ import annotations

from typing import Any

from plaza.app import Plaza
from plaza.sessions.sign_in import SignIn
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.events import EVENTS
from plaza.shop.item_desk import ItemDesk
from plaza.shop.items import Items
from plaza.shop.model import ItemChange, NewItem, OrderChange, OrderState
from plaza.shop.order_desk import OrderDesk
from plaza.shop.views import Views
from tests.events.recorder import PRIVATE, EventRecorder


async def test_every_type_is_emitted(plaza: Plaza, redis_client: Any) -> None:
    items, carts, checkout = plaza.get(Items), plaza.get(Carts), plaza.get(Checkout)
    recorder = EventRecorder(plaza, redis_client)
    for _ in range(2):  # the same operation again
        item = (await items.create(NewItem(PRIVATE, PRIVATE, "19.90", 10), "create")).id
    await recorder.expect(("item.created", {"item": item}))
    await items.change(item, ItemChange(name=f"{PRIVATE} 2"))
    await recorder.expect(("item.updated", {"item": item}))
    token = (await plaza.get(SignIn).admit(None, "ana")).token
    await carts.put(token, item, 2)
    await recorder.expect()
    for _ in range(2):  # a second checkout of the emptied cart returns the order
        _, order = await checkout.check_out(token)
    lines = [{"item": item, "qty": 2}]
    await recorder.expect(("order.placed", {"order": order.id, "username": "ana", "items": lines}))
    first = order.id
    guest = (await plaza.get(Views).view(None, item))[0].token
    await carts.put(guest, item, 1)
    _, order = await checkout.check_out(guest)
    lines = [{"item": item, "qty": 1}]
    await recorder.expect(("order.placed", {"order": order.id, "username": None, "items": lines}))
    states: tuple[OrderState, ...] = ("paid", "shipped", "done")
    for state in states:
        for _ in range(2):  # the second time it changes nothing
            await plaza.get(OrderDesk).change(first, OrderChange(state=state))
        await recorder.expect((f"order.{state}", {"order": first, "username": "ana"}))
    await plaza.get(OrderDesk).change(order.id, OrderChange(state="cancelled", note=PRIVATE))
    await recorder.expect(("order.cancelled", {"order": order.id, "username": None}))
    await plaza.get(ItemDesk).change_stock(item, 1)
    await recorder.expect(("item.updated", {"item": item}))
    assert recorder.types == {event_type.type for event_type in EVENTS}
