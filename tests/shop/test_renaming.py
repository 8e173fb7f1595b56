"""Renaming a user while requests go on: every line of the cart is moved once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.errors import Unauthenticated
from plaza.core.functions import Functions
from plaza.core.sql import Sql
from plaza.sessions.model import SessionReplaced
from plaza.shop.keys import ACCOUNT_CART, account_keys
from tests.processes import SimulatedCrash
from tests.shop.conftest import CreateItem, MemoryAccounts, Shop, assemble, create_item_in
from tests.username_lock_probe import assert_waits_for_username_lock

NOTHING: dict[str, Any] = {"cart": {}, "sessions": [], "orders": []}


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("dies", [False, True])
async def test_a_line_added_during_a_renaming_is_neither_lost_nor_doubled(
    shop: Shop, create_item: CreateItem, monkeypatch: pytest.MonkeyPatch, heard: bool, dies: bool
) -> None:
    """A request runs before every step, in a process that knows of the renaming or not; the step may be repeated."""
    before, added = await create_item(), await create_item()
    for step in range(5):
        old, new = f"ana{step}", f"anna{step}"
        token = (await shop.sign_in.admit(None, old)).token
        await shop.carts.put(token, before.id, 2)
        shop.clock.advance(seconds=1)
        if heard:
            await shop.revocations.revoke(old)
        clicks: list[str] = []  # the token that each click left behind, unless it was refused

        async def click(token: str = token, clicks: list[str] = clicks) -> None:
            with contextlib.suppress(SessionReplaced):
                clicks.append((await shop.carts.put(token, added.id, 3))[0].token)

        async with _before(shop, monkeypatch, step, click, dies=dies):
            await shop.personal_data.rename(old, new)
        for _ in range(2):
            await shop.personal_data.rename(old, new)
        moved = (await shop.personal_data.export(new))["cart"]
        held = [moved.get(str(added.id), 0) + (await shop.lines(token)).get(added.id, 0) for token in clicks]
        assert (moved[str(before.id)], held) == (2, [3] * len(clicks)), step
        assert await shop.personal_data.export(old) == NOTHING


@contextlib.asynccontextmanager
async def _before(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, step: int, act: Any, *, dies: bool
) -> AsyncIterator[None]:
    """Runs another request before a given call. The caller goes on, or is killed."""
    call, left = shop.functions.run, step

    async def counted(command: str, *args: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            monkeypatch.setattr(shop.functions, "run", call)
            await act()
            if dies:
                raise SimulatedCrash
        return await call(command, *args, **options)

    monkeypatch.setattr(shop.functions, "run", counted)
    with contextlib.suppress(SimulatedCrash):
        yield
    monkeypatch.setattr(shop.functions, "run", call)


async def test_a_cart_ordered_under_the_old_name_is_not_ordered_again(
    shop: Shop, create_item: CreateItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await create_item(qty=5)
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 2)

    async def die(*_: Any) -> None:
        raise SimulatedCrash

    with monkeypatch.context() as patch, contextlib.suppress(SimulatedCrash):
        patch.setattr(shop.checkout, "_finish", die)
        await shop.checkout.check_out(token)
    await shop.personal_data.rename("ana", "anna")
    renamed = (await shop.sign_in.admit(None, "anna")).token
    _, order = await shop.checkout.check_out(renamed)
    assert [line.qty for line in order.items] == [2]
    assert (await shop.items.read(item.id)).qty == 3
    assert await shop.lines(renamed) == {}
    assert len((await shop.personal_data.export("anna"))["orders"]) == 1


async def test_a_late_cart_change_writes_nothing_under_a_deleted_name(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    """On a cluster it asks who is signed in first, and then puts the line into that user's cart."""
    item = await create_item()
    await shop.login("ana")
    await shop.personal_data.delete("ana")
    assert await shop.functions.run("shop_put_account_line", account_keys("ana"), "ana", item.id, 1) == []
    assert not await redis_client.exists(ACCOUNT_CART("ana"))


# Each database and each place once.
in_pairs = pytest.mark.parametrize(
    ("place", "sql_settings"), [("server", "postgresql"), ("cluster", "sqlite")], indirect=True
)


@in_pairs
async def test_a_checkout_delayed_before_its_commit_leaves_no_order_under_the_old_name(
    functions: Functions,
    sql: Sql,
    clock: ManualClock,
    registered_accounts: MemoryAccounts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The renaming begins and ends while the request is between its reading of the cart and its transaction."""
    shop = assemble(functions, sql, clock, registered_accounts)
    item = await create_item_in(shop, qty=5)
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 2)
    order = shop.checkout._order

    async def held_up(*args: Any) -> Any:
        clock.advance(seconds=1)
        await shop.revocations.revoke("ana")
        await shop.personal_data.rename("ana", "anna")
        return await order(*args)

    with monkeypatch.context() as patch:
        patch.setattr(shop.checkout, "_order", held_up)
        with pytest.raises(Unauthenticated):
            await shop.checkout.check_out(token)
    assert await shop.personal_data.export("ana") == NOTHING
    assert await shop.personal_data.export("anna") == {**NOTHING, "cart": {str(item.id): 2}}
    assert (await shop.items.read(item.id)).qty == 5
    _, ordered = await shop.checkout.check_out((await shop.sign_in.admit(None, "anna")).token)
    assert [line.qty for line in ordered.items] == [2]
    await shop.pages.drain()


async def test_a_late_checkout_writes_nothing_under_a_deleted_name(shop: Shop, redis_client: Any) -> None:
    await shop.login("ana")
    await shop.personal_data.delete("ana")
    keys = account_keys("ana")
    assert await shop.functions.run("shop_start_account_checkout", keys, "an id") == []
    assert not await redis_client.exists(*keys)


@pytest.mark.parametrize(("place", "sql_settings"), [("server", "postgresql")], indirect=True)
@pytest.mark.parametrize("new", ["anna", None])
async def test_a_renaming_waits_for_orders_that_are_being_written(
    functions: Functions, sql: Sql, clock: ManualClock, registered_accounts: MemoryAccounts, new: str | None
) -> None:
    orders = assemble(functions, sql, clock, registered_accounts).orders
    await assert_waits_for_username_lock(sql, functions.valkey, "ana", orders.change_buyer("ana", new))
