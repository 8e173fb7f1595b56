"""The shop: product pages from the page cache, the cart, checkout and orders. Guests may do it all."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.errors import Conflict
from plaza.core.http.request import Call
from plaza.core.http.responses import Answer
from plaza.core.paging import Page
from plaza.shop.carts import Carts
from plaza.shop.cookies import token_of
from plaza.shop.items import Items
from plaza.shop.model import MOST_PER_LINE, Cart, ItemId, NewQuantity
from plaza.shop.orders import Orders
from plaza.shop.sessions import Sessions
from plaza.shop.views import Views
from plaza.web import forms
from plaza.web.products import Products, tiles
from plaza.web.rendering import tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.text import older

page = PageRoutes()

TABS: Final = (
    ("New", "/app/shop"),
    ("Popular", "/app/shop/popular"),
    ("Seen", "/app/shop/seen"),
    ("Cart", "/app/shop/cart"),
    ("Orders", "/app/shop/orders"),
)


def _tabs(on: str) -> dict[str, Any]:
    return {"tabs": tabs("Shop", TABS, on), "section": "Shop"}


@page.get("/shop")
async def shop(call: Call, site: Site, items: Items, cursor: str | None = None) -> Answer[str]:
    """Items, the newest first."""
    who = await site.visitors.of(call)
    found = await items.page(Page(limit=24, cursor=cursor))
    more = older("/app/shop", found.pagination, "More")
    return site.page(call, who, "shop.html", title="Shop", rows=tiles(found.items), more=more, **_tabs("New"))


@page.get("/shop/popular")
async def popular(call: Call, site: Site, views: Views, cursor: str | None = None) -> Answer[str]:
    """Items, the most viewed first."""
    who = await site.visitors.of(call)
    found = await views.popular(Page(limit=24, cursor=cursor))
    more = older("/app/shop/popular", found.pagination, "More")
    return site.page(call, who, "shop.html", title="Popular", rows=tiles(found.items), more=more, **_tabs("Popular"))


@page.get("/shop/seen")
async def seen(call: Call, site: Site, views: Views) -> Answer[str]:
    """What this visitor has looked at, the newest first."""
    visit, found = await views.recently(token_of(call), Page(limit=24))
    who = await site.visitors.behind(call, visit)
    return site.page(call, who, "shop.html", title="Seen lately", rows=tiles(found.items), more="", **_tabs("Seen"))


@page.get("/shop/items/{id}")
async def item(call: Call, site: Site, id: ItemId, views: Views, products: Products) -> Answer[str]:
    """An item, which counts as a view. What is the same for everybody comes from the page cache."""
    visit, found = await views.view(token_of(call), id)
    who = await site.visitors.behind(call, visit)
    product, status = await products.shown(found)
    answer = site.page(
        call, who, "item.html", section="Shop", item=found, product=product, most=min(found.qty, MOST_PER_LINE)
    )
    answer.headers = (*answer.headers, ("cache-status", status))
    return answer


@page.get("/shop/cart")
async def cart(call: Call, site: Site, carts: Carts) -> Answer[str]:
    """The cart, at today's prices."""
    visit, found = await carts.read(token_of(call))
    who = await site.visitors.behind(call, visit)
    return site.page(call, who, "cart.html", cart=found, problem="", **_tabs("Cart"))


@page.post("/shop/cart/{id}")
async def put(call: Call, body: bytes, site: Site, id: ItemId, carts: Carts) -> Answer[str]:
    """Want so many of an item; 0 removes it."""
    visit, found = await carts.put(token_of(call), id, forms.read(body, NewQuantity).qty)
    who = await site.visitors.behind(call, visit)
    return site.done(call, who, body, "/app/shop/cart", "cart-changed.html", said=_said(found, id), cart=found)


def _said(cart: Cart, id: int) -> str:
    line = next((line for line in cart.items if line.id == id), None)
    return "Taken out of the cart." if line is None else f"{line.qty} in the cart."


@page.get("/shop/checkout")
async def checking_out() -> Answer[str]:
    """Back to the cart, from the address at which an order that failed was told of."""
    return Answer(status=303, headers=[("location", "/app/shop/cart")])


@page.post("/shop/checkout")
async def check_out(call: Call, body: bytes, site: Site, carts: Carts, orders: Orders) -> Answer[str]:
    """Order what is in the cart. One cart makes one order."""
    try:
        visit, order = await orders.check_out(token_of(call))
    except Conflict as error:
        visit, found = await carts.read(token_of(call))
        who = await site.visitors.behind(call, visit)
        said: dict[str, Any] = {
            "status": error.status,
            "problem": error.detail,
            "here": "/app/shop/cart",
            **_tabs("Cart"),
        }
        return site.page(call, who, "cart.html", cart=found, **said)
    who = await site.visitors.behind(call, visit)
    return site.done(call, who, b"", f"/app/shop/orders#order-{order.id}")


@page.get("/shop/orders")
async def own_orders(
    call: Call, site: Site, sessions: Sessions, orders: Orders, cursor: str | None = None
) -> Answer[str]:
    """One's own orders, the newest first; a guest's are those of this session."""
    visit, _ = await sessions.visit(token_of(call))
    who = await site.visitors.behind(call, visit)
    found = await orders.page(visit, Page(cursor=cursor))
    more = older("/app/shop/orders", found.pagination)
    return site.page(call, who, "orders.html", orders=found.orders, more=more, **_tabs("Orders"))
