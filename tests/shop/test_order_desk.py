"""Operators find orders, move them from state to state, and change the stock, on both databases."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator

import httpx
import pytest

from plaza.core.clock import ManualClock
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page
from plaza.core.sql import Sql
from plaza.shop import order_desk
from plaza.shop.model import (
    AllItemsQuery,
    EmptyCart,
    ItemChange,
    NoteChanged,
    OperatorOrder,
    OrderChange,
    OrdersQuery,
    OrderState,
    OutOfStock,
    WrongOrderState,
)
from tests.shop.conftest import KEY, MemoryAccounts, Shop, assemble, create_item_in
from tests.shop.test_orders import in_pairs, stock


@pytest.fixture
async def both(
    functions: Functions, sql: Sql, clock: ManualClock, registered_accounts: MemoryAccounts
) -> AsyncIterator[Shop]:
    """A shop on one server with PostgreSQL, then on a cluster with SQLite."""
    shop = assemble(functions, sql, clock, registered_accounts)
    yield shop
    await shop.pages.drain()


async def place_order(shop: Shop, token: str, item: int, qty: int = 1) -> int:
    await shop.carts.put(token, item, qty)
    return (await shop.checkout.check_out(token))[1].id


async def move(shop: Shop, id: int, state: OrderState) -> OperatorOrder:
    return await shop.order_desk.change(id, OrderChange(state=state))


@in_pairs
async def test_an_order_goes_from_state_to_state_and_never_back(both: Shop, clock: ManualClock) -> None:
    item = await create_item_in(both, qty=5)
    token = await both.login("ana")
    id = await place_order(both, token, item.id, 2)
    states: tuple[OrderState, ...] = ("paid", "shipped", "done")
    for state in states:
        clock.advance(seconds=1)
        for _ in range(2):  # a repeated request changes nothing
            assert (await move(both, id, state)).state == state
    for state in ("placed", "paid", "cancelled"):
        with pytest.raises(WrongOrderState) as error:
            await move(both, id, state)
        assert error.value.extra == {"state": "done"}
    order = await both.order_desk.read(id)
    assert order.paid_at is not None
    assert order.shipped_at == order.paid_at + 1
    assert (order.customer, order.cancelled_at, await stock(both, item.id)) == ("ana", None, 3)
    (own,) = (await both.orders.page(await both.sessions.visit(token), Page())).orders
    assert own.state == "done"
    with pytest.raises(NotFound):
        await move(both, id + 1, "paid")


@in_pairs
async def test_concurrent_cancellations_give_the_stock_back_once(both: Shop) -> None:
    one, two = await create_item_in(both, qty=3), await create_item_in(both, qty=3)
    token = await both.guest_token()
    await both.carts.put(token, one.id, 2)
    id = await place_order(both, token, two.id, 3)
    await asyncio.gather(*(move(both, id, "cancelled") for _ in range(5)))
    assert (await stock(both, one.id), await stock(both, two.id)) == (3, 3)
    assert (await both.items.read(two.id)).qty == 3, "the cached row too"
    with pytest.raises(WrongOrderState):
        await move(both, id, "paid")


@in_pairs
async def test_an_order_is_either_paid_or_cancelled_under_a_race(both: Shop) -> None:
    item = await create_item_in(both, qty=8)
    token = await both.guest_token()
    ids = [await place_order(both, token, item.id) for _ in range(4)]
    await asyncio.gather(
        *(move(both, id, state) for id in ids for state in ("shipped", "cancelled")),
        return_exceptions=True,
    )
    orders = [await both.order_desk.read(id) for id in ids]
    assert await stock(both, item.id) == 4 + sum(order.state == "cancelled" for order in orders)


@in_pairs
async def test_orders_are_found_by_customer_and_state_and_paged(both: Shop) -> None:
    item = await create_item_in(both, qty=50)
    ana, ben = await both.login("ana"), await both.login("ben")
    of_ana = [await place_order(both, ana, item.id) for _ in range(3)]
    of_ben = await place_order(both, ben, item.id)
    await move(both, of_ana[0], "paid")
    await both.order_desk.change(of_ana[1], OrderChange(note="  Call first. "))
    for note in ("Call first.", "\r\nCall  first."):  # a second click is no conflict
        await both.order_desk.change(of_ana[1], OrderChange(note="Call first.", expected_note=note))
    await both.order_desk.change(of_ana[1], OrderChange(note="Call first.", expected_note=""))
    with pytest.raises(NoteChanged):
        await both.order_desk.change(of_ana[1], OrderChange(note="Gift", expected_note=""))

    async def found(**query: str) -> list[int]:
        page = await both.order_desk.page(OrdersQuery(limit=2, **query))  # type: ignore[arg-type]
        ids = [order.id for order in page.orders]
        if page.pagination.next_cursor:
            rest = OrdersQuery(limit=100, cursor=page.pagination.next_cursor, **query)  # type: ignore[arg-type]
            ids += [order.id for order in (await both.order_desk.page(rest)).orders]
        return ids

    assert await found() == [of_ben, *reversed(of_ana)]
    assert await found(customer="ana") == list(reversed(of_ana))
    assert await found(customer="ana", state="paid") == [of_ana[0]]
    assert await found(state="shipped") == []
    assert (await both.order_desk.read(of_ana[1])).note == "Call first."
    exported = await both.personal_data.export("ana")
    assert [order["note"] for order in exported["orders"]] == ["", "Call first.", ""]
    assert exported["orders"][0]["state"] == "paid"
    await both.personal_data.delete("ana")
    assert (await both.order_desk.read(of_ana[1])).note == "", "a note about a deleted user is deleted"


@in_pairs
async def test_a_download_has_every_order_and_no_formula(both: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_desk, "EXPORT_BATCH", 2)
    item = await create_item_in(both, name="=1+1", price="1.50", qty=50)
    token = await both.login("ana")
    ids = [await place_order(both, token, item.id, 2) for _ in range(5)]
    await both.order_desk.change(ids[0], OrderChange(state="cancelled", note="=cmd()"))
    text = "".join([chunk async for chunk in both.order_desk.csv_chunks(OrdersQuery())])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["order"]) for row in rows] == list(reversed(ids))
    last = rows[-1]
    assert (last["customer"], last["state"], last["total"], last["note"]) == ("ana", "cancelled", "3.00", "'=cmd()")
    assert last["items"] == "2 × =1+1"


@in_pairs
async def test_stock_changes_by_a_difference_and_no_sale_is_lost(both: Shop) -> None:
    item = await create_item_in(both, qty=5)
    tokens = [await both.guest_token() for _ in range(4)]
    for token in tokens:
        await both.carts.put(token, item.id, 1)
    changes = [both.item_desk.change_stock(item.id, 3, f"delivery-{n}") for n in (0, 0, 1)]
    await asyncio.gather(*changes, *(both.checkout.check_out(token) for token in tokens))
    assert await stock(both, item.id) == 5 + 3 + 3 - 4
    for delta in (-8, 1_000_000_000):
        with pytest.raises(OutOfStock):
            await both.item_desk.change_stock(item.id, delta)
    assert (await both.item_desk.change_stock(item.id, -7)).qty == 0
    assert (await both.items.read(item.id)).qty == 0
    assert sorted(entry.delta for entry in await both.item_desk.stock_history(item.id)) == [-7, 3, 3]
    with pytest.raises(NotFound):
        await both.item_desk.change_stock(item.id + 1, 1)


@in_pairs
async def test_a_withdrawn_item_is_not_listed_read_or_sold_until_it_is_back(both: Shop) -> None:
    item = await create_item_in(both, qty=5)
    token = await both.guest_token()
    await both.carts.put(token, item.id, 1)
    assert (await both.items.change(item.id, ItemChange(withdrawn=True))).withdrawn is True
    assert (await both.items.page(Page())).items == []
    with pytest.raises(NotFound):
        await both.items.read(item.id)
    with pytest.raises(OutOfStock):
        await both.checkout.check_out(token)
    (shown,) = (await both.item_desk.page(AllItemsQuery(name="gtab"))).items
    assert (await both.item_desk.page(AllItemsQuery(name="_"))).items == [], "no wildcard"
    assert (shown.withdrawn, shown.qty) == (True, 5)
    await both.item_desk.change_stock(item.id, 1)
    with pytest.raises(NotFound):
        await both.items.read(item.id)
    await both.items.change(item.id, ItemChange(withdrawn=False))
    assert (await both.items.read(item.id)).qty == 6
    await both.checkout.check_out(token)
    with pytest.raises(EmptyCart):
        await both.checkout.check_out(await both.guest_token())


async def test_orders_and_stock_over_http(web: httpx.AsyncClient) -> None:
    body = {"name": "Lamp", "description": "", "price": "2.00", "qty": 2}
    item = (await web.post("/shop/items", json=body, headers=KEY)).json()["id"]
    await web.put(f"/shop/cart/items/{item}", json={"qty": 1})
    order = (await web.post("/shop/checkout")).json()
    assert order["state"] == "placed"
    path = f"/admin/orders/{order['id']}"
    assert (await web.get(path)).status_code == 401, "the customer is not an operator"
    changed = await web.patch(path, json={"state": "paid", "note": "Gift"}, headers=KEY)
    assert (changed.json()["state"], changed.json()["note"], changed.json()["customer"]) == ("paid", "Gift", None)
    assert (await web.get("/shop/orders")).json()["orders"][0]["state"] == "paid"
    assert "note" not in (await web.get("/shop/orders")).json()["orders"][0]
    refused = await web.patch(path, json={"state": "done"}, headers=KEY)
    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_state")
    assert (await web.patch(path, json={"state": "lost"}, headers=KEY)).json()["field"] == "state"
    listed = (await web.get("/admin/orders", params={"state": "paid"}, headers=KEY)).json()
    assert [found["id"] for found in listed["orders"]] == [order["id"]]
    download = await web.get("/admin/orders.csv", headers=KEY)
    assert download.text.count("\r\n") == 2
    again = {**KEY, "Idempotency-Key": "delivery"}
    for _ in range(2):
        added = await web.post(f"/admin/items/{item}/stock", json={"delta": 3}, headers=again)
        assert added.json()["qty"] == 4
    log = (await web.get("/admin/log", params={"kind": "admin"}, headers=KEY)).json()["actions"]
    logged = {(action["action"], action["detail"]) for action in log}
    assert ("PATCH /admin/orders/{id}", "state=paid") in logged
    assert ("POST /admin/items/{id}/stock", "delta=3") in logged
