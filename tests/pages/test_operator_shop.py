"""The operators' pages of items and orders over HTTP, without JavaScript."""

from __future__ import annotations

import asyncio
import re
from html import unescape

import pytest

from plaza.accounts.model import LogQuery
from plaza.accounts.security_log import SqlSecurityLog
from plaza.app import Plaza
from plaza.core.auth import API
from plaza.shop import item_desk
from plaza.shop.item_desk import ItemDesk
from plaza.shop.model import OrderChange
from plaza.shop.order_desk import OrderDesk
from plaza.social.users import Users
from tests.media.images import picture
from tests.pages.conftest import PageClient

ITEMS = "/app/operator/items"
PICTURE = r'remove\?picture=([^"]+)"'
ORDERS = "/app/operator/orders"


@pytest.fixture
async def admin(plaza: Plaza, ana: PageClient) -> PageClient:
    await plaza.get(Users).set_role(API, "ana", "admin")
    return ana


async def create_item(admin: PageClient, **fields: str) -> str:
    """Create an item on its page; returns the path of the item's page."""
    new = {"name": "Lamp", "description": "Warm.", "price": "2.50", "qty": "5", **fields}
    response = await admin.submit(ITEMS, page=ITEMS, **new)
    assert response.status_code == 303, response.text
    return str(response.headers["location"])


async def place_order(client: PageClient, item: str, qty: int = 2) -> str:
    id = item.rpartition("/")[2]
    await client.submit(f"/app/shop/cart/{id}", page="/app/shop/cart", qty=str(qty))
    placed = await client.submit("/app/shop/checkout", page="/app/shop/checkout")
    return f"{ORDERS}/{placed.headers['location'].rpartition('/')[2]}"


async def logged(plaza: Plaza) -> list[tuple[str, str]]:
    found = await plaza.get(SqlSecurityLog).search(LogQuery(kind="admin"))
    return [(action.action, action.detail) for action in found.actions]


async def test_an_operator_creates_edits_and_withdraws_an_item(plaza: Plaza, admin: PageClient) -> None:
    item = await create_item(admin, name="<b>Lamp</b>")
    id = int(item.rpartition("/")[2])
    assert "&lt;b&gt;Lamp" in (await admin.get(item)).text
    await admin.submit(item, page=item, name="Lamp", description="", price="3")
    assert "3.00" in (await admin.get(ITEMS)).text
    assert (await plaza.get(ItemDesk).read(id)).description == ""
    refused = await admin.submit(item, page=item, name="Lamp", price="cheap")
    assert refused.status_code == 422
    assert 'value="cheap"' in refused.text
    asked = await admin.get(f"{item}/withdraw")
    assert "Its orders and its stock stay." in asked.text
    assert (await admin.get(f"/app/shop/items/{id}")).status_code == 200, "it only asked"
    await admin.submit(item, page=f"{item}/withdraw")
    assert (await admin.get(f"/app/shop/items/{id}")).status_code == 404
    assert "withdrawn" in (await admin.get(ITEMS)).text
    await admin.submit(item, page=item, withdrawn="false")
    assert (await admin.get(f"/app/shop/items/{id}")).status_code == 200
    assert ("POST /app/operator/items/{id}", "withdrawn=true") in await logged(plaza)


async def test_operators_who_edit_one_item_do_not_overwrite_each_other(plaza: Plaza, admin: PageClient) -> None:
    item = await create_item(admin, name="Lamp", description="Warm.\n\nLight <b>.", price="2.50")
    id, desk = int(item.rpartition("/")[2]), plaza.get(ItemDesk)
    shown = {"name": "Lamp", "description": "Warm.\r\n\r\nLight <b>.", "price": "2.50"}
    opened = {**await admin.hidden_fields(item, item), **shown}

    for _ in range(2):  # the same form twice
        assert (await admin.post(item, data={**opened, "price": "3"})).status_code == 303
    renamed = await admin.post(item, data={**opened, "name": "Old lamp"})
    assert renamed.status_code == 303, "what another operator has not touched"
    found = await desk.read(id)
    assert (found.name, found.description, found.price) == ("Old lamp", "Warm.\n\nLight <b>.", "3.00")

    refused = await admin.post(item, data={**opened, "price": "4.20", "description": "Cold."})
    assert refused.status_code == 409
    parts = ('value="4.20"', "Cold.</textarea>", "Now: <bdi>3.00</bdi>", 'value="Old lamp"')
    for part in (*parts, "Another operator has changed"):
        assert part in refused.text, part
    assert await desk.read(id) == found, "all or nothing"
    seen = dict(re.findall(r'name="(seen_\w+)" value="([^"]*)"', refused.text))
    again = {**opened, **{name: unescape(text) for name, text in seen.items()}, "name": "Old lamp", "price": "4.20"}
    assert (await admin.post(item, data=again)).status_code == 303
    assert (await desk.read(id)).price == "4.20"


async def test_an_operator_finds_an_item_by_name_or_number(admin: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_desk, "BATCH", 1)
    lamp, cup = await create_item(admin, name="Blue lamp"), await create_item(admin, name="Cup, 100%")
    sofa = await create_item(admin, name="ÉTÉ")
    await admin.submit(cup, page=f"{cup}/withdraw")
    for text, found in (
        ("LAMP", [lamp]),
        (" cup", [cup]),
        ("%", [cup]),
        ("_", []),
        ("u", [cup, lamp]),
        ("ete", [sofa]),
        ("été", [sofa]),
    ):
        page = (await admin.get(ITEMS, params={"q": text})).text
        assert re.findall(rf'href="({ITEMS}/\d+)"', page) == found, text
        assert ("No items match." in page) is (not found), text
    id = cup.rpartition("/")[2]
    for text in (id, f" #{id} "):
        assert (await admin.get(ITEMS, params={"q": text})).headers["location"] == cup, text
    for wrong in ("-1", "999999", "9" * 500, "<b>"):
        assert "No items match." in (await admin.get(ITEMS, params={"q": wrong})).text, wrong


async def test_a_stock_form_sent_twice_counts_once(plaza: Plaza, admin: PageClient) -> None:
    item = await create_item(admin)
    form = {**await admin.hidden_fields(item, f"{item}/stock"), "delta": "4"}
    for _ in range(2):
        assert (await admin.post(f"{item}/stock", data=form)).status_code == 303
    assert (await plaza.get(ItemDesk).read(1)).qty == 9
    refused = await admin.submit(f"{item}/stock", page=item, delta="-10")
    assert (refused.status_code, "below 0" in refused.text) == (409, True)
    assert (await admin.submit(f"{item}/stock", page=item, delta="0")).status_code == 303
    assert re.findall(r'class="n">([+-]\d+),', (await admin.get(item)).text) == ["+4"]


async def test_pictures_of_an_item_are_added_ordered_and_removed(plaza: Plaza, admin: PageClient) -> None:
    item = await create_item(admin)
    files = [("file", (f"{n}.png", picture(seed=n), "image/png")) for n in (1, 2)]
    fields = await admin.hidden_fields(item)
    added = await admin.post(f"{item}/pictures", data={**fields, "alt1": "A lamp"}, files=files)
    assert added.status_code == 303, added.text
    first, second = re.findall(PICTURE, (await admin.get(item)).text)
    await admin.submit(f"{item}/pictures/remove", page=item, first=second)
    assert re.findall(PICTURE, (await admin.get(item)).text) == [second, first]
    remove = f"{item}/pictures/remove"
    asked = await admin.get(remove, params={"picture": second})
    assert (asked.status_code, "Remove picture 1 of Lamp?" in asked.text) == (200, True)
    assert re.findall(PICTURE, (await admin.get(item)).text) == [second, first], "it only asked"
    assert (await admin.get(remove, params={"picture": "other"})).status_code == 404
    await admin.submit(remove, page=f"{remove}?picture={second}")
    assert ("POST /app/operator/items/{id}/pictures/remove", f"picture={second}") in await logged(plaza)
    assert re.findall(PICTURE, (await admin.get(item)).text) == [first]
    id = item.rpartition("/")[2]
    await admin.submit(f"/app/shop/cart/{id}", page=f"/app/shop/items/{id}", qty="1")
    assert f"/media/{first}/" in (await admin.get("/app/shop/cart")).text
    forms = [await admin.hidden_fields(item) for _ in range(2)]
    sent = (
        admin.post(f"{item}/pictures", data=form, files=[("file", ("b.png", picture(seed=n), "image/png"))])
        for n, form in enumerate(forms, 3)
    )
    assert [added.status_code for added in await asyncio.gather(*sent)] == [303, 303]
    assert len(re.findall(PICTURE, (await admin.get(item)).text)) == 3, "two operators at the same time"
    too_many = [("file", (f"{n}.png", picture(), "image/png")) for n in range(4)]
    refused = await admin.post(f"{item}/pictures", data=await admin.hidden_fields(item), files=too_many)
    assert (refused.status_code, "at most 4 pictures" in refused.text) == (422, True)


async def test_an_operator_finds_an_order_and_brings_it_to_its_end(plaza: Plaza, admin: PageClient) -> None:
    item = await create_item(admin)
    order = await place_order(admin, item)
    number = order.rpartition("/")[2]
    found = await admin.get(ORDERS, params={"number": f" {number} "})
    assert found.headers["location"] == order
    assert (await admin.get(ORDERS, params={"number": f"#{number}"})).headers["location"] == order
    for wrong in ("0", "999999", "9" * 500, "abc", "-1"):
        missing = await admin.get(ORDERS, params={"number": wrong})
        assert (missing.status_code, "There is no order with this number." in missing.text) == (200, True), wrong
    for query, expected in (({"customer": "@ana", "state": "placed"}, True), ({"state": "paid"}, False)):
        assert (f'href="{order}"' in (await admin.get(ORDERS, params=query)).text) is expected
    for state in ("paid", "shipped", "done"):
        assert f'value="{state}"' in (await admin.get(order)).text
        assert (await admin.submit(order, page=order, state=state)).status_code == 303
    page = (await admin.get(order)).text
    assert "Nothing is left to do." in page
    late = await admin.submit(order, page=order, state="cancelled")
    assert (late.status_code, "It cannot become cancelled." in late.text) == (409, True)
    form = await admin.hidden_fields(order)
    await admin.submit(order, page=order, note="Call <first>.")
    late = await admin.post(order, data={**form, "note": "Gift"})
    assert late.status_code == 409
    assert "Now: <bdi>Call &lt;first&gt;.</bdi>" in late.text
    assert "Gift</textarea>" in late.text
    assert "Call &lt;first&gt;." in (await admin.get(order)).text
    await admin.submit(order, page=order, note="")
    assert (await plaza.get(OrderDesk).read(int(number))).note == ""
    download = await admin.get(f"{ORDERS}.csv", params={"state": "done"})
    assert (download.headers["content-type"], ",ana,done,5.00," in download.text) == ("text/csv; charset=utf-8", True)
    assert ("POST /app/operator/orders/{id}", "state=done") in await logged(plaza)


async def test_an_operator_is_asked_before_an_order_is_cancelled(plaza: Plaza, admin: PageClient) -> None:
    item = await create_item(admin)
    order = await place_order(admin, item)
    await plaza.get(OrderDesk).change(1, OrderChange(state="paid"))
    asked = (await admin.get(f"{order}/cancel")).text
    for effect in ("Back in stock: 2 × Lamp.", "ana is notified.", "do that yourself"):
        assert effect in asked
    assert (await plaza.get(ItemDesk).read(1)).qty == 3, "it only asked"
    await admin.submit(order, page=f"{order}/cancel")
    assert (await plaza.get(ItemDesk).read(1)).qty == 5
    assert (await plaza.get(OrderDesk).read(1)).state == "cancelled"
    again = await admin.get(f"{order}/cancel")
    assert (again.status_code, again.headers.get("location")) == (303, order), "there is nothing to ask any more"


async def test_only_admins_see_these_pages(ana: PageClient) -> None:
    for path in (ITEMS, f"{ITEMS}/1", f"{ITEMS}/1/withdraw", ORDERS, f"{ORDERS}/1", f"{ORDERS}/1/cancel"):
        assert (await ana.get(path)).status_code == 403, path
