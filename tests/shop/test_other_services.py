"""Another service, a plain client here, writes carts by the document."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.sessions.keys import LOGIN_TOKENS, RECENT_TOKENS, SESSION_STATE
from plaza.sessions.model import new_token
from plaza.shop.keys import ACCOUNT_CART, CART
from plaza.shop.model import EmptyCart
from tests.shop.conftest import CreateItem, Shop


async def test_a_line_written_for_a_signed_in_user_is_shown_ordered_and_kept(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    first, second, third = await create_item(), await create_item(), await create_item()
    token, phone = await shop.login("ana"), await shop.login("ana")
    await shop.carts.put(token, first.id, 1)
    await shop.functions.outbox.drain()
    await redis_client.hset(CART(token), str(second.id), "4")
    await shop.carts.put(phone, third.id, 1)
    await shop.functions.outbox.drain()
    assert await redis_client.hgetall(CART(token)) == {str(first.id): "1", str(second.id): "4", str(third.id): "1"}
    assert await shop.lines(token) == {first.id: 1, second.id: 4, third.id: 1}
    await shop.functions.outbox.drain()
    assert await shop.lines(phone) == {first.id: 1, second.id: 4, third.id: 1}
    _, order = await shop.checkout.check_out(token)
    assert {line.id: line.qty for line in order.items} == {first.id: 1, second.id: 4, third.id: 1}
    await shop.functions.outbox.drain()
    assert await shop.lines(token) == await shop.lines(phone) == {}


async def test_a_line_written_just_before_the_checkout_is_ordered(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item(qty=5000)
    for token in (await shop.guest_token(), await shop.login("ana")):
        await redis_client.hset(CART(token), str(item.id), "1200")
        _, order = await shop.checkout.check_out(token)
        assert [(line.id, line.qty) for line in order.items] == [(item.id, 1200)]


async def test_lines_changed_and_removed_by_another_service_stay_so(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    first, second = await create_item(), await create_item()
    token = await shop.login("ana")
    await shop.carts.put(token, first.id, 3)
    await shop.carts.put(token, second.id, 3)
    await shop.functions.outbox.drain()
    await redis_client.hdel(CART(token), str(first.id))
    await redis_client.hset(CART(token), str(second.id), "7")
    assert await shop.lines(token) == {second.id: 7}
    await shop.functions.outbox.drain()
    assert await redis_client.hgetall(ACCOUNT_CART("ana")) == {str(second.id): "7"}
    assert await shop.lines(await shop.login("ana")) == {second.id: 7}


async def test_a_line_that_is_put_after_another_services_change_stays(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    token = await shop.login("ana")
    for n in range(1, 9):
        await redis_client.hset(CART(token), str(item.id), str(10 + n))
        if n % 2:
            await shop.carts.read(token)
        await shop.carts.put(token, item.id, n if n % 4 else 0)
        await shop.functions.outbox.drain()
        assert await shop.lines(token) == ({item.id: n} if n % 4 else {})


@pytest.mark.parametrize("place", ["cluster"], indirect=True)
async def test_a_change_after_a_failover_that_lost_the_one_before_reaches_the_account(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    """The session's node goes back; the account's node still has the number of the change that is lost."""
    item = await create_item()
    token = await shop.login("ana")
    await shop.carts.put(token, item.id, 1)
    await shop.functions.outbox.drain()
    cart, state = await redis_client.hgetall(CART(token)), await redis_client.hgetall(SESSION_STATE(token))
    for qty in (3, 4):
        await redis_client.hset(CART(token), str(item.id), str(qty))
        await shop.carts.read(token)
        await shop.functions.outbox.drain()
        assert await redis_client.hgetall(ACCOUNT_CART("ana")) == {str(item.id): str(qty)}
        await redis_client.delete(SESSION_STATE(token))
        await redis_client.hset(CART(token), mapping=cart)
        await redis_client.hset(SESSION_STATE(token), mapping=state)


@pytest.mark.parametrize("qty", [0, 3])
async def test_the_first_request_of_a_token_may_change_the_line_of_another_service(
    shop: Shop, create_item: CreateItem, redis_client: Any, qty: int
) -> None:
    item, token = await create_item(), new_token()
    await redis_client.hset(LOGIN_TOKENS(), token, "ana")
    await redis_client.zadd(RECENT_TOKENS(), {token: shop.clock.now_s()})
    await redis_client.hset(CART(token), str(item.id), "4")
    await shop.carts.put(token, item.id, qty)
    await shop.functions.outbox.drain()
    assert await shop.lines(token) == ({item.id: qty} if qty else {})


async def test_a_cart_of_unreadable_lines_never_returns_the_previous_order(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    for token in (await shop.guest_token(), await shop.login("ana")):
        await shop.carts.put(token, item.id, 1)
        await shop.checkout.check_out(token)
        await shop.functions.outbox.drain()
        await redis_client.hset(CART(token), mapping={"item1": "10", str(item.id): "a few"})
        with pytest.raises(EmptyCart):
            await shop.checkout.check_out(token)
        assert await shop.lines(token) == {}


async def test_unreadable_lines_do_not_prevent_a_login(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    item = await create_item()
    await shop.carts.put(await shop.login("ana"), item.id, 2)
    guest = await shop.guest_token()
    await redis_client.hset(CART(guest), mapping={"item1": "10", str(item.id): "a few"})
    assert await shop.lines(await shop.login("ana", guest)) == {item.id: 2}
