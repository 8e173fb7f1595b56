"""The shop's pages: the number of items in the cart, the currency, and the views of the cached item page."""

from __future__ import annotations

from redis.asyncio import Redis

from plaza.app import Plaza
from plaza.shop.items import Items
from plaza.shop.model import ItemChange, NewItem
from tests.pages.conftest import PageClient, ParsedPage
from tests.servers import Server


async def test_every_page_shows_the_number_of_items_in_the_cart_and_prices_with_the_currency(
    guest: PageClient, plaza: Plaza
) -> None:
    item = (await plaza.get(Items).create(NewItem("Lamp", "Bright.", "1250.00", 9), "one")).id
    page = await guest.get(f"/app/shop/items/{item}")
    assert "€1,250.00" in page.text
    assert 'id="cart-count" hidden' in page.text
    added = await guest.submit(f"/app/shop/cart/{item}", page=f"/app/shop/items/{item}", qty="3")
    assert added.status_code == 303
    assert '<span class="count" id="cart-count">3<' in (await guest.get("/app")).text
    checkout = (await guest.get("/app/shop/checkout")).text
    assert "Place order for €3,750.00" in checkout
    ordered = await guest.submit("/app/shop/checkout", page="/app/shop/checkout")
    order = await guest.get(ordered.headers["location"])
    assert "€3,750.00" in order.text
    assert 'id="cart-count" hidden' in order.text


async def test_what_is_not_available_is_removed_before_an_order(guest: PageClient, plaza: Plaza) -> None:
    items = plaza.get(Items)
    gone, kept = [(await items.create(NewItem(name, "", "9.00", 2), name)).id for name in ("Lamp", "Bell")]
    for item in (gone, kept):
        await guest.submit(f"/app/shop/cart/{item}", page=f"/app/shop/items/{item}", qty="2")
    await items.change(gone, ItemChange(withdrawn=True))
    for path in ("/app/shop/cart", "/app/shop/checkout"):
        page = (await guest.get(path)).text
        assert "Lamp" in page
        assert f'href="/app/shop/items/{gone}"' not in page, "it has no page any more"
        assert "not sold any more" in page
        assert "€0.00" not in page
        assert "Place order" not in page
        assert ">Check out</a>" not in page
    refused = await guest.submit("/app/shop/checkout", page="/app/shop/cart")
    assert refused.status_code == 409
    assert "Remove it from the cart." in refused.text
    button = next(fields for tag, fields in ParsedPage(refused.text).elements if fields.get("name") == "qty")
    assert (button["formaction"], button["value"]) == (f"/app/shop/cart/{gone}", "0")
    await guest.submit(f"/app/shop/cart/{gone}", page="/app/shop/cart", qty="0")
    assert "Place order for €18.00" in (await guest.get("/app/shop/checkout")).text


async def test_the_cached_page_of_an_item_counts_views(guest: PageClient, plaza: Plaza, server: Server) -> None:
    item = (await plaza.get(Items).create(NewItem("Lamp", "Bright.", "9.00", 9), "one")).id
    first = await guest.get(f"/shop/pages/items/{item}")
    again = await guest.get(f"/shop/pages/items/{item}", headers={"if-none-match": first.headers["etag"]})
    assert "€9.00" in first.text
    assert again.status_code == 304
    assert "set-cookie" not in first.headers, "the page stays the same for everyone"
    assert (await guest.get("/shop/pages/items/999")).status_code == 404
    async with Redis(port=server.port, decode_responses=True) as other_service:
        assert await other_service.zrange("viewed:", 0, -1, withscores=True) == [(str(item), -2.0)]
