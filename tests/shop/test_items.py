"""Items: in SQL, read through `inv:<id>`, never a float for a price."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert

from plaza.caching.keys import CACHED_ROW, ITEM_VIEWS, ROW_DELAYS
from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.core.sql import Sql
from plaza.shop.items import row_loader
from plaza.shop.keys import CART, VIEWED_ITEMS
from plaza.shop.model import ExpectedItem, Item, ItemChange, ItemChanged, NewItem, hundredths, price_text
from plaza.shop.tables import ITEMS
from tests.shop.conftest import CreateItem, Shop


async def test_a_row_has_the_documented_key_and_fields(create_item: CreateItem, redis_client: Any) -> None:
    item = await create_item(name="GTab 7inch", price="19.9", qty=629)
    row = json.loads(await redis_client.get(CACHED_ROW(item.id)))
    assert row["qty"] == 629
    assert row["name"] == "GTab 7inch"
    assert row["description"] == "A tablet."
    assert row["price"] == "19.90"


async def test_a_change_is_visible_at_once_in_the_cached_row(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    await shop.items.read(item.id)
    changed = await shop.items.change(item.id, ItemChange(price="7", qty=3))
    assert (changed.price, changed.qty, changed.name) == ("7.00", 3, "GTab 7inch")
    assert json.loads(await redis_client.get(CACHED_ROW(item.id)))["price"] == "7.00"
    assert await shop.items.read(item.id) == changed


async def test_an_item_changes_only_if_it_is_as_expected(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item(price="19.90")
    await shop.items.change(item.id, ItemChange(description="Two\r\nlines."))
    as_sent = ExpectedItem(description="Two\nlines.", price="19.9")
    changes = [ItemChange(price=price, expected=as_sent) for price in ("21", "23")]
    raced = await asyncio.gather(*(shop.items.change(item.id, each) for each in changes), return_exceptions=True)
    (changed,) = (each for each in raced if isinstance(each, Item))
    assert [type(each) for each in raced if each is not changed] == [ItemChanged]
    again = await shop.items.change(item.id, ItemChange(price=changed.price, expected=as_sent))
    assert again.price == changed.price, "it is so already"
    with pytest.raises(ItemChanged) as refused:
        await shop.items.change(item.id, ItemChange(price="22", expected=ExpectedItem(name="Other", price="19.90")))
    assert refused.value.extra["fields"] == ["name", "price"]
    with pytest.raises(ItemChanged, match="media"):
        await shop.items.change(item.id, ItemChange(price="22", expected=ExpectedItem(media=["another"])))
    assert (await shop.items.read(item.id)).price == changed.price


async def test_an_unknown_item_cannot_be_changed(shop: Shop, create_item: CreateItem) -> None:
    item = await create_item()
    with pytest.raises(NotFound):
        await shop.items.change(item.id + 1, ItemChange(qty=0))


async def test_a_repeated_operation_creates_one_item(shop: Shop) -> None:
    new = NewItem("x", "", "1", 1)
    first = await shop.items.create(new, "same")
    assert (await shop.items.create(new, "same")).id == first.id


async def test_pages_of_items_neither_repeat_nor_skip(shop: Shop, create_item: CreateItem) -> None:
    ids = [(await create_item(name=f"item {n}")).id for n in range(7)]
    seen, cursor = [], None
    while True:
        page = await shop.items.page(Page(limit=3, cursor=cursor))
        seen += [item.id for item in page.items]
        cursor = page.pagination.next_cursor
        if cursor is None:
            break
        await create_item()  # newer ones do not disturb a list that is being read
    assert seen == sorted(ids, reverse=True)


async def test_a_row_written_by_another_service_by_the_document_breaks_nothing(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item = await create_item()
    for text in ('{"qty":629, "name": "GTab 7inch", "description": "..."}', "no JSON", '"text"'):
        await redis_client.set(CACHED_ROW(item.id), text)
        assert await shop.items.read(item.id) == item
        await redis_client.set(CACHED_ROW(item.id), text)
        assert (await shop.items.page(Page())).items == [item]
        await redis_client.set(CACHED_ROW(item.id), text)
        assert (await shop.views.view(None, item.id))[1] == item


async def test_members_that_are_not_items_appear_in_no_list(
    shop: Shop, create_item: CreateItem, redis_client: Any
) -> None:
    item, token = await create_item(), await shop.guest_token()
    strange = {"item1": -23, "a b": -22, "007": -21, str(item.id): -1}
    await redis_client.set(CACHED_ROW("item1"), '{"qty":629, "name": "GTab 7inch", "description": "..."}')
    await redis_client.zadd(ITEM_VIEWS(), strange)
    await redis_client.zadd(VIEWED_ITEMS(token), strange)
    await redis_client.zadd(ROW_DELAYS(), dict.fromkeys(strange, 5))
    await redis_client.hset(CART(token), mapping={"item1": "10", str(item.id): "3", "2": "many", "3": "-1"})
    assert (await shop.views.popular(Page())).items == [item]
    assert (await shop.views.recently_viewed(token, Page()))[1].items == [item]
    assert [row.id for row in (await shop.row_schedules.state(Page())).rows] == [item.id]
    assert await shop.lines(token) == {item.id: 3}
    _, order = await shop.checkout.check_out(token)
    assert [(line.id, line.qty) for line in order.items] == [(item.id, 3)]


async def test_an_unknown_item_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound):
        await shop.items.read(77)


async def test_both_databases_return_equal_rows(sql: Sql) -> None:
    async with sql.begin() as tx:
        values = {"name": "n", "description": "d", "price": 10**12 + 1, "qty": 5, "version": 1}
        id = (await tx.execute(insert(ITEMS).values(values).returning(ITEMS.c.id))).scalar_one()
    rows = await row_loader(sql)([str(id), "999", "no number", "²", f"0{id}", "9" * 25])
    assert rows == {
        str(id): {"qty": 5, "name": "n", "description": "d", "price": "10000000000.01", "id": id, "version": 1}
    }


@pytest.mark.parametrize(
    ("text", "amount"), [("0", 0), ("19.9", 1990), ("19.90", 1990), ("9999999999.99", 999999999999)]
)
def test_prices_are_exact(text: str, amount: int) -> None:
    assert hundredths(text) == amount
    assert hundredths(price_text(amount)) == amount


@pytest.mark.parametrize("price", ["-1", "1e3", "1.999", "", "1,5", "NaN", " 1", "1\n", "١"])
def test_an_invalid_price_is_rejected(price: str) -> None:
    body = json.dumps({"name": "n", "description": "d", "price": price, "qty": 1})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=NewItem)
