"""Carts: storage, merging, and random operations against a plain model."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.sessions.model import new_token
from plaza.sessions.sign_in import GRACE_SECONDS
from plaza.shop.keys import ACCOUNT_CART, CART, account_keys
from plaza.shop.model import MAX_LINES, CartFull, NewQuantity
from tests.shop.conftest import CreateItem, Shop


async def test_a_cart_has_the_documented_keys(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    one, two = await create_item(), await create_item()
    for token in (await shop.guest_token(), await shop.login("ana")):
        await shop.carts.put(token, one.id, 10)
        await shop.carts.put(token, two.id, 3)
        assert await redis_client.hgetall(CART(token)) == {str(one.id): "10", str(two.id): "3"}


async def test_a_cart_shows_current_prices(shop: Shop, create_item: CreateItem) -> None:
    one, two = await create_item(name="one", price="0.10", qty=5), await create_item(name="two", price="19.90")
    token = await shop.guest_token()
    await shop.carts.put(token, one.id, 3)
    _, cart = await shop.carts.put(token, two.id, 2)
    assert cart.total == "40.10"
    assert [(line.name, line.total, line.available) for line in cart.items] == [
        ("one", "0.30", True),
        ("two", "39.80", True),
    ]
    _, cart = await shop.carts.put(token, one.id, 6)
    assert [line.available for line in cart.items] == [False, True]


@pytest.mark.parametrize("qty", [-1, 1000, 10**9, 1.5, "2", None, True])
def test_an_invalid_quantity_is_rejected(qty: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"qty": qty}), type=NewQuantity)


async def test_zero_removes_and_an_unknown_item_changes_nothing(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    for token in (await shop.guest_token(), await shop.login("ana")):
        await shop.carts.put(token, item.id, 999)
        with pytest.raises(NotFound):
            await shop.carts.put(token, item.id + 1, 1)
        assert await shop.lines(token) == {item.id: 999}
        _, cart = await shop.carts.put(token, item.id, 0)
        assert cart.items == []
        await shop.carts.put(token, item.id + 1, 0)  # taking out what is not there is no mistake
        assert await shop.lines(token) == {}


async def test_an_item_that_is_not_cached_can_be_put_in_a_cart(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    await shop.rows.schedule(str(item.id), 0)
    for token in (await shop.guest_token(), None):
        visit, cart = await shop.carts.put(token, item.id, 2)
        assert [line.qty for line in cart.items] == [2]
        assert visit.new == (token is None)
        await shop.rows.schedule(str(item.id), 0)


async def test_a_cart_has_at_most_a_hundred_lines(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    item = await create_item()
    guest, ana = await shop.guest_token(), await shop.login("ana")
    for token, cart in ((guest, CART(guest)), (ana, ACCOUNT_CART("ana"))):
        await redis_client.hset(cart, mapping={f"9{n:05d}": 1 for n in range(MAX_LINES)})
        with pytest.raises(CartFull):
            await shop.carts.put(token, item.id, 1)
        assert await redis_client.hlen(cart) == MAX_LINES


async def test_at_login_the_quantities_of_both_carts_add_up_to_at_most_999(shop: Shop, create_item: CreateItem) -> None:
    one, two, three = await create_item(), await create_item(), await create_item()
    ana = await shop.login("ana")
    await shop.carts.put(ana, one.id, 2)
    await shop.carts.put(ana, two.id, 900)
    await shop.sessions.logout(ana)
    guest = await shop.guest_token()
    await shop.carts.put(guest, two.id, 100)
    await shop.carts.put(guest, three.id, 5)
    again = await shop.login("ana", guest)
    assert await shop.lines(again) == {one.id: 2, two.id: 999, three.id: 5}


async def test_a_login_that_fails_half_way_leaves_the_guests_cart_unchanged(
    shop: Shop, create_item: CreateItem
) -> None:
    item, guest = await create_item(), await shop.guest_token()
    await shop.carts.put(guest, item.id, 2)
    with shop.dies_at("shop_open_session"):
        await shop.login("ana", guest)
    shop.clock.advance(seconds=3600)
    assert await shop.lines(guest) == {item.id: 2}


async def test_a_guests_cart_is_merged_once_even_if_the_login_is_repeated(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    guest = await shop.guest_token()
    await shop.carts.put(guest, item.id, 3)
    tokens = await asyncio.gather(*(shop.login("ana", guest) for _ in range(5)))
    await shop.functions.outbox.drain()
    for token in tokens:
        assert await shop.lines(token) == {item.id: 3}
    shop.clock.advance(seconds=GRACE_SECONDS + 1)
    assert await shop.lines(await shop.login("ana", guest)) == {item.id: 3}


async def test_a_repeated_merge_counts_once(shop: Shop, redis_client: Any) -> None:
    for _ in range(2):  # as it may on a cluster, when a worker takes over from a process that was only slow
        await shop.functions.run("shop_merge_cart", account_keys("ana"), "ana", new_token(), "7 1")
    token = new_token()
    for _ in range(2):
        await shop.functions.run("shop_merge_cart", account_keys("ana"), "ana", token, "7 3 8 2")
    assert await redis_client.hgetall(ACCOUNT_CART("ana")) == {"7": "5", "8": "2"}


async def test_all_sessions_of_a_user_show_one_cart(shop: Shop, create_item: CreateItem, redis_client: Any) -> None:
    item = await create_item()
    phone, laptop = await shop.login("ana"), await shop.login("ana")
    await shop.carts.put(phone, item.id, 4)
    assert await redis_client.hgetall(CART(laptop)) == {str(item.id): "4"}
    await shop.carts.put(laptop, item.id, 0)
    assert await redis_client.exists(CART(phone)) == 0


async def test_viewed_items_are_kept_at_login(shop: Shop, create_item: CreateItem) -> None:
    one, two = await create_item(), await create_item()
    guest = await shop.guest_token()
    await shop.views.view(guest, one.id)
    shop.clock.advance(seconds=1)
    await shop.views.view(guest, two.id)
    ana = await shop.login("ana", guest)
    _, viewed = await shop.views.recently_viewed(ana, Page())
    assert [item.id for item in viewed.items] == [two.id, one.id]


class CartModel:
    """What carts should hold, in plain dictionaries."""

    def __init__(self) -> None:
        self.account: dict[int, int] = {}
        self.guests: dict[str, dict[int, int]] = {}
        self.signed_in: set[str] = set()

    def cart(self, token: str) -> dict[int, int]:
        return self.account if token in self.signed_in else self.guests.setdefault(token, {})

    def put(self, token: str, item: int, qty: int) -> None:
        if qty:
            self.cart(token)[item] = qty
        else:
            self.cart(token).pop(item, None)

    def login(self, old: str, new: str) -> None:
        if old not in self.signed_in:
            for item, qty in self.guests.pop(old, {}).items():
                self.account[item] = min(self.account.get(item, 0) + qty, 999)
        self.signed_in.discard(old)
        self.signed_in.add(new)


@pytest.mark.parametrize("seed", range(2))
async def test_random_operations_on_carts_match_a_plain_model(shop: Shop, create_item: CreateItem, seed: int) -> None:
    chance, model = random.Random(seed), CartModel()
    items = [(await create_item()).id for _ in range(3)]
    browsers = [await shop.guest_token() for _ in range(3)]
    for _ in range(30):
        which = chance.randrange(3)
        token = browsers[which]
        step = chance.choice(["put", "put", "put", "put", "login", "logout"])
        if step == "put":
            item, qty = chance.choice(items), chance.choice([0, 1, 5, 998, 999])
            model.put(token, item, qty)
            await shop.carts.put(token, item, qty)
        elif step == "login":
            browsers[which] = await shop.login("ana", token)
            model.login(token, browsers[which])
        else:
            await shop.sessions.logout(token)
            model.signed_in.discard(token)
            model.guests.pop(token, None)
            browsers[which] = await shop.guest_token()
        shop.clock.advance(seconds=1)
        for browser in browsers:
            assert await shop.lines(browser) == model.cart(browser)


async def test_after_concurrent_changes_all_sessions_of_a_user_show_the_same_cart(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    ids = [(await create_item()).id for _ in range(4)]
    tokens, guests = [await shop.login("ana") for _ in range(3)], [await shop.guest_token() for _ in range(3)]
    await asyncio.gather(
        *(shop.carts.put(tokens[n % 3], ids[n % 4], n % 7) for n in range(60)),
        *(shop.login("ana", guest) for guest in guests),
    )
    await shop.functions.outbox.drain()
    account = await redis_client.hgetall(ACCOUNT_CART("ana"))
    for token in tokens:
        assert await redis_client.hgetall(CART(token)) == account
