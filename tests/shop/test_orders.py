"""Checkout never oversells, orders a cart once, and uses current prices, on both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import func, select, update

from plaza.caching.keys import CACHED_ROW
from plaza.core.clock import ManualClock
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page
from plaza.core.sql import Sql
from plaza.sessions.keys import LOGIN_TOKENS
from plaza.shop.checkout import REPEAT_SECONDS
from plaza.shop.keys import CART
from plaza.shop.model import EmptyCart, ItemChange, NewOrder, OutOfStock, PriceChanged
from plaza.shop.order_desk import OrderDesk
from plaza.shop.order_history import OrderHistory
from plaza.shop.tables import ITEMS, LINES, ORDERS
from tests.shop.conftest import CreateItem, MemoryAccounts, Shop, assemble, create_item_in
from tests.waiting import eventually


@pytest.fixture
async def both(
    functions: Functions, sql: Sql, clock: ManualClock, registered_accounts: MemoryAccounts
) -> AsyncIterator[Shop]:
    """A shop on SQLite, then on PostgreSQL."""
    shop = assemble(functions, sql, clock, registered_accounts)
    yield shop
    await shop.pages.drain()


# Both places and both databases, without all four combinations; the last pieces are sold in each of the four.
in_pairs = pytest.mark.parametrize(
    ("place", "sql_settings"), [("server", "postgresql"), ("cluster", "sqlite")], indirect=True
)


async def stock(shop: Shop, id: int) -> int:
    async with shop.sql.read() as tx:
        return int((await tx.execute(select(ITEMS.c.qty).where(ITEMS.c.id == id))).scalar_one())


async def count_of(shop: Shop, table: Any) -> int:
    async with shop.sql.read() as tx:
        return int((await tx.execute(select(func.count()).select_from(table))).scalar_one())


@in_pairs
async def test_an_order_at_another_total_than_the_customer_saw_changes_nothing(both: Shop) -> None:
    item = await create_item_in(both, price="1.00", qty=5)
    token = await both.guest_token()
    await both.carts.put(token, item.id, 2)
    await both.items.change(item.id, ItemChange(price="1.50"))
    with pytest.raises(PriceChanged) as error:
        await both.checkout.check_out(token, NewOrder(expected_total="2.00"))
    assert error.value.extra == {"expected_total": "2.00", "total": "3.00"}
    assert (await stock(both, item.id), await count_of(both, ORDERS)) == (5, 0)
    _, order = await both.checkout.check_out(token, NewOrder(expected_total="3"))
    assert order.total == "3.00"
    visit, repeated = await both.checkout.check_out(token, NewOrder(expected_total="99"))
    assert repeated == order

    # The order keeps its currency when the setting changes; one that was stored without a currency follows the setting.
    later, desk = OrderHistory(both.sql, "USD"), OrderDesk(both.sql, both.items, both.clock, "USD")
    for currency in ("EUR", "USD"):
        assert (await later.read(visit, order.id)).currency == (await desk.read(order.id)).currency == currency
        async with both.sql.begin() as tx:
            await tx.execute(update(ORDERS).values(currency=None))


@in_pairs
async def test_an_order_takes_stock_empties_the_cart_and_refreshes_the_row_at_once(
    both: Shop, redis_client: Any
) -> None:
    one, two = await create_item_in(both, price="0.10", qty=5), await create_item_in(both, price="19.90", qty=2)
    for token, left in ((await both.guest_token(), (2, 1)), (await both.login("ana"), (1, 0))):
        await both.carts.put(token, one.id, 3 if left[0] == 2 else 1)
        await both.carts.put(token, two.id, 1)
        _, order = await both.checkout.check_out(token)
        assert order.total == ("20.20" if left[0] == 2 else "20.00")
        assert await both.lines(token) == {}
        assert await redis_client.exists(CART(token)) == 0
        for item, qty in zip((one, two), left, strict=True):
            assert await stock(both, item.id) == qty
            assert json.loads(await redis_client.get(CACHED_ROW(item.id)))["qty"] == qty
        visit = await both.sessions.visit(token)
        assert (await both.orders.page(visit, Page())).orders == [order]


@in_pairs
async def test_an_order_has_the_prices_at_its_time(both: Shop) -> None:
    item = await create_item_in(both, price="1.00")
    token = await both.guest_token()
    await both.carts.put(token, item.id, 2)
    await both.items.change(item.id, ItemChange(price="1.50"))
    _, order = await both.checkout.check_out(token)
    assert order.total == "3.00"
    await both.items.change(item.id, ItemChange(price="9.00", name="renamed"))
    visit = await both.sessions.visit(token)
    assert (await both.orders.page(visit, Page())).orders == [order]
    assert await both.orders.read(visit, order.id) == order
    with pytest.raises(NotFound):
        await both.orders.read(await both.sessions.visit(await both.guest_token()), order.id)


async def test_two_hundred_checkouts_of_the_last_ten_pieces_sell_exactly_ten(both: Shop) -> None:
    item = await create_item_in(both, qty=10)
    tokens = [await both.guest_token() for _ in range(200)]
    await asyncio.gather(*(both.carts.put(token, item.id, 1) for token in tokens))
    results = await asyncio.gather(*(both.checkout.check_out(token) for token in tokens), return_exceptions=True)
    sold = [result for result in results if not isinstance(result, BaseException)]
    assert len(sold) == 10
    assert all(isinstance(r, OutOfStock) for r in results if isinstance(r, BaseException))
    assert await stock(both, item.id) == 0
    assert await count_of(both, ORDERS) == 10
    assert await count_of(both, LINES) == 10
    assert (await both.items.read(item.id)).qty == 0
    unsold = next(t for t, r in zip(tokens, results, strict=True) if isinstance(r, OutOfStock))
    assert await both.lines(unsold) == {item.id: 1}, "who got nothing keeps the cart"


@in_pairs
async def test_twenty_concurrent_checkouts_of_one_cart_make_one_order(both: Shop) -> None:
    item = await create_item_in(both, qty=100)
    for token in (await both.guest_token(), await both.login("ana")):
        await both.carts.put(token, item.id, 2)
        before = await stock(both, item.id)
        results = await asyncio.gather(*(both.checkout.check_out(token) for _ in range(20)))
        assert len({order.id for _, order in results}) == 1
        assert await stock(both, item.id) == before - 2
        assert await both.lines(token) == {}


@in_pairs
async def test_a_refused_checkout_consumes_no_order_id(both: Shop) -> None:
    item = await create_item_in(both, qty=2)
    ids = []
    for _ in range(2):
        buyer, loser = await both.guest_token(), await both.guest_token()
        await both.carts.put(loser, item.id, 3)
        for _ in range(3):
            with pytest.raises(OutOfStock):
                await both.checkout.check_out(loser)
        await both.carts.put(buyer, item.id, 1)
        ids.append((await both.checkout.check_out(buyer))[1].id)
    assert ids[1] == ids[0] + 1


@in_pairs
async def test_without_enough_stock_nothing_changes(both: Shop) -> None:
    one, two = await create_item_in(both, qty=5), await create_item_in(both, qty=1)
    token = await both.guest_token()
    await both.carts.put(token, one.id, 5)
    await both.carts.put(token, two.id, 2)
    with pytest.raises(OutOfStock) as refused:
        await both.checkout.check_out(token)
    assert refused.value.extra == {"id": two.id, "wanted": 2, "left": 1}
    assert (await stock(both, one.id), await stock(both, two.id)) == (5, 1)
    assert await count_of(both, ORDERS) == 0
    assert await both.lines(token) == {one.id: 5, two.id: 2}
    await both.carts.put(token, two.id, 1)
    await both.checkout.check_out(token)
    assert (await stock(both, one.id), await stock(both, two.id)) == (0, 0)


@pytest.mark.parametrize("moment", ["caching_fill_row", "caching_purge", "shop_finish"])
async def test_a_crash_between_sql_and_valkey_does_not_sell_twice(
    shop: Shop, create_item: CreateItem, redis_client: Any, moment: str
) -> None:
    item, other = await create_item(qty=10), await create_item(qty=10)
    await shop.rows.schedule(str(item.id), 3600)
    for token in (await shop.guest_token(), await shop.login("ana")):
        await shop.carts.put(token, item.id, 2)
        before = await stock(shop, item.id)
        with shop.dies_at(moment):
            await shop.checkout.check_out(token)
        assert await shop.lines(token) == {item.id: 2}
        await shop.carts.put(token, other.id, 1)  # the customer goes on shopping
        _, order = await shop.checkout.check_out(token)
        assert [(line.id, line.qty) for line in order.items] == [(item.id, 2)]
        assert await stock(shop, item.id) == before - 2
        assert json.loads(await redis_client.get(CACHED_ROW(item.id)))["qty"] == before - 2
        assert await shop.lines(token) == {other.id: 1}, "what was added since is for the next order"
        _, second = await shop.checkout.check_out(token)
        assert [(line.id, line.qty) for line in second.items] == [(other.id, 1)]


async def test_a_cart_that_was_ordered_is_not_merged_again_at_login(shop: Shop, create_item: CreateItem) -> None:
    item, other = await create_item(qty=10), await create_item(qty=10)
    ana = await shop.login("ana")
    await shop.carts.put(ana, item.id, 1)
    guest = await shop.guest_token()
    await shop.carts.put(guest, item.id, 2)
    with shop.dies_at("shop_finish"):
        await shop.checkout.check_out(guest)
    await shop.carts.put(guest, other.id, 3)
    again = await shop.login("ana", guest)
    assert await shop.lines(again) == {item.id: 1, other.id: 3}
    assert await shop.lines(ana) == {item.id: 1, other.id: 3}
    assert await stock(shop, item.id) == 8


async def test_a_login_during_a_checkout_leaves_no_ordered_line_in_the_cart(
    shop: Shop, create_item: CreateItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await create_item(qty=10)
    guest = await shop.guest_token()
    await shop.carts.put(guest, item.id, 2)
    order, tokens = shop.checkout._order, []

    async def slow(*args: Any) -> Any:
        made = await order(*args)
        tokens.append(await shop.login("ana", guest))
        return made

    monkeypatch.setattr(shop.checkout, "_order", slow)
    await shop.checkout.check_out(guest)
    assert await shop.lines(tokens[0]) == {}
    assert await count_of(shop, ORDERS) == 1


async def test_a_line_added_during_a_checkout_stays_in_the_cart(
    shop: Shop, create_item: CreateItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await create_item(qty=10)
    token = await shop.guest_token()
    await shop.carts.put(token, item.id, 1)
    order = shop.checkout._order

    async def slow(*args: Any) -> Any:
        made = await order(*args)
        await shop.carts.put(token, item.id, 3)
        return made

    monkeypatch.setattr(shop.checkout, "_order", slow)
    await shop.checkout.check_out(token)
    assert await shop.lines(token) == {item.id: 2}


async def test_a_late_second_checkout_removes_nothing_from_the_next_cart(
    shop: Shop, create_item: CreateItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await create_item(qty=10)
    for token in (await shop.guest_token(), await shop.login("ana")):
        await shop.carts.put(token, item.id, 2)
        call, gate = shop.functions.run, asyncio.Event()

        async def wait(command: str, *args: Any, call: Any = call, gate: asyncio.Event = gate) -> Any:
            if command.startswith("shop_finish"):
                await gate.wait()
            return await call(command, *args)

        with monkeypatch.context() as patch:
            patch.setattr(shop.functions, "run", wait)
            late = asyncio.create_task(shop.checkout.check_out(token))
            await eventually(lambda: count_of(shop, ORDERS))
            patch.setattr(shop.functions, "run", call)
            await shop.checkout.check_out(token)
            await shop.carts.put(token, item.id, 5)
            gate.set()
            await late
        assert await shop.lines(token) == {item.id: 5}
        await shop.carts.put(token, item.id, 0)
        shop.clock.advance(seconds=REPEAT_SECONDS + 1)


async def test_an_empty_cart_is_rejected_when_the_last_order_is_old(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    token = await shop.guest_token()
    with pytest.raises(EmptyCart):
        await shop.checkout.check_out(token)
    await shop.carts.put(token, item.id, 1)
    _, order = await shop.checkout.check_out(token)
    assert (await shop.checkout.check_out(token))[1] == order
    shop.clock.advance(seconds=REPEAT_SECONDS + 1)
    with pytest.raises(EmptyCart):
        await shop.checkout.check_out(token)


async def test_users_see_only_their_own_orders(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    ana, guest = await shop.login("ana"), await shop.guest_token()
    for token in (ana, guest):
        await shop.carts.put(token, item.id, 1)
        await shop.checkout.check_out(token)
    for token, count in ((ana, 1), (guest, 1), (await shop.login("ana"), 1), (await shop.login("ben"), 0)):
        visit = await shop.sessions.visit(token)
        assert len((await shop.orders.page(visit, Page())).orders) == count


@in_pairs
async def test_pages_of_orders_neither_repeat_nor_skip(both: Shop) -> None:
    item = await create_item_in(both, qty=10)
    token = await both.login("ana")
    made = []
    for _ in range(5):
        await both.carts.put(token, item.id, 1)
        made.append((await both.checkout.check_out(token))[1].id)
        both.clock.advance(seconds=1)
    visit = await both.sessions.visit(token)
    first = await both.orders.page(visit, Page(limit=3))
    rest = await both.orders.page(visit, Page(limit=3, cursor=first.pagination.next_cursor))
    assert [order.id for order in (*first.orders, *rest.orders)] == made[::-1]
    assert rest.pagination.next_cursor is None


async def test_a_renamed_user_keeps_cart_and_orders(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    item = await create_item()
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 1)
    await shop.checkout.check_out(token)
    await shop.carts.put(token, item.id, 2)
    before = await shop.personal_data.export("ana")
    for _ in range(2):
        await shop.personal_data.rename("ana", "anna")
    after = await shop.personal_data.export("anna")
    moved = [{**order, "customer": "anna"} for order in before["orders"]]
    assert after == {**before, "orders": moved, "sessions": []}
    assert await shop.personal_data.export("ana") == {"cart": {}, "sessions": [], "orders": []}
    assert (await shop.sessions.visit(token)).new
    assert await redis_client.hlen(LOGIN_TOKENS()) == 0


async def test_export_has_everything_and_deletion_leaves_nothing(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 1)
    await shop.checkout.check_out(token)
    await shop.carts.put(token, item.id, 2)
    held = await shop.personal_data.export("ana")
    assert held["cart"] == {str(item.id): 2}
    assert len(held["sessions"]) == len(held["orders"]) == 1
    assert token not in json.dumps(held)
    await shop.personal_data.delete("ana")
    await shop.personal_data.delete("ana")
    assert await shop.personal_data.export("ana") == {"cart": {}, "sessions": [], "orders": []}
    assert (await shop.sessions.visit(token)).new
    assert await redis_client.exists(CART(token)) == 0
    assert await count_of(shop, ORDERS) == 1, "stock and sums still add up"
