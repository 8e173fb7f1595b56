"""The shop: product pages from the page cache, the cart, checkout and orders. Guests may do it all."""

from __future__ import annotations

from typing import Any, Final

from plaza.core.errors import Conflict
from plaza.core.http.access import PUBLIC, SESSION
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.sessions.cookies import token_of
from plaza.sessions.service import Sessions
from plaza.shop.carts import Carts
from plaza.shop.items import Items
from plaza.shop.model import MOST_PER_LINE, Cart, ItemId, NewQuantity
from plaza.shop.orders import Orders
from plaza.shop.views import Views
from plaza.web import forms
from plaza.web.product_html import Products, tiles
from plaza.web.rendering import tabs
from plaza.web.routing import PageRoutes
from plaza.web.site import Site
from plaza.web.text_html import older

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


@page.get("/shop", access=PUBLIC)
async def shop(request: Request, site: Site, items: Items, cursor: str | None = None) -> Response[str]:
    """Items, the newest first."""
    who = await site.visitors.of(request)
    found = await items.page(Page(limit=24, cursor=cursor))
    more = older("/app/shop", found.pagination, "More")
    return site.page(request, who, "shop.html", title="Shop", rows=tiles(found.items), more=more, **_tabs("New"))


@page.get("/shop/popular", access=PUBLIC)
async def popular(request: Request, site: Site, views: Views, cursor: str | None = None) -> Response[str]:
    """Items, the most viewed first."""
    who = await site.visitors.of(request)
    found = await views.popular(Page(limit=24, cursor=cursor))
    more = older("/app/shop/popular", found.pagination, "More")
    return site.page(request, who, "shop.html", title="Popular", rows=tiles(found.items), more=more, **_tabs("Popular"))


@page.get("/shop/seen", access=SESSION)
async def seen(request: Request, site: Site, views: Views) -> Response[str]:
    """What this visitor has looked at, the newest first."""
    visit, found = await views.recently(token_of(request), Page(limit=24))
    who = await site.visitors.behind(request, visit)
    return site.page(request, who, "shop.html", title="Seen lately", rows=tiles(found.items), more="", **_tabs("Seen"))


@page.get("/shop/items/{id}", access=SESSION)
async def item(request: Request, site: Site, id: ItemId, views: Views, products: Products) -> Response[str]:
    """An item, which counts as a view. What is the same for everybody comes from the page cache."""
    visit, found = await views.view(token_of(request), id)
    who = await site.visitors.behind(request, visit)
    product, status = await products.shown(found)
    answer = site.page(
        request, who, "item.html", section="Shop", item=found, product=product, most=min(found.qty, MOST_PER_LINE)
    )
    answer.headers = (*answer.headers, ("cache-status", status))
    return answer


@page.get("/shop/cart", access=SESSION)
async def cart(request: Request, site: Site, carts: Carts) -> Response[str]:
    """The cart, at today's prices."""
    visit, found = await carts.read(token_of(request))
    who = await site.visitors.behind(request, visit)
    return site.page(request, who, "cart.html", cart=found, problem="", **_tabs("Cart"))


@page.post("/shop/cart/{id}", access=SESSION)
async def put(request: Request, body: bytes, site: Site, id: ItemId, carts: Carts) -> Response[str]:
    """Want so many of an item; 0 removes it."""
    visit, found = await carts.put(token_of(request), id, forms.read(body, NewQuantity).qty)
    who = await site.visitors.behind(request, visit)
    return site.done(request, who, body, "/app/shop/cart", "cart-changed.html", said=_said(found, id), cart=found)


def _said(cart: Cart, id: int) -> str:
    line = next((line for line in cart.items if line.id == id), None)
    return "Taken out of the cart." if line is None else f"{line.qty} in the cart."


@page.get("/shop/checkout", access=PUBLIC)
async def checking_out() -> Response[str]:
    """Back to the cart, from the address at which an order that failed was told of."""
    return Response(status=303, headers=[("location", "/app/shop/cart")])


@page.post("/shop/checkout", access=SESSION)
async def check_out(request: Request, body: bytes, site: Site, carts: Carts, orders: Orders) -> Response[str]:
    """Order what is in the cart. One cart makes one order."""
    try:
        visit, order = await orders.check_out(token_of(request))
    except Conflict as error:
        visit, found = await carts.read(token_of(request))
        who = await site.visitors.behind(request, visit)
        said: dict[str, Any] = {
            "status": error.status,
            "problem": error.detail,
            "here": "/app/shop/cart",
            **_tabs("Cart"),
        }
        return site.page(request, who, "cart.html", cart=found, **said)
    who = await site.visitors.behind(request, visit)
    return site.done(request, who, b"", f"/app/shop/orders#order-{order.id}")


@page.get("/shop/orders", access=SESSION)
async def own_orders(
    request: Request, site: Site, sessions: Sessions, orders: Orders, cursor: str | None = None
) -> Response[str]:
    """One's own orders, the newest first; a guest's are those of this session."""
    visit, _ = await sessions.visit(token_of(request))
    who = await site.visitors.behind(request, visit)
    found = await orders.page(visit, Page(cursor=cursor))
    more = older("/app/shop/orders", found.pagination)
    return site.page(request, who, "orders.html", orders=found.orders, more=more, **_tabs("Orders"))
