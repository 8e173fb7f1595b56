"""The shop: items, cart, checkout and orders, also for guests. Product pages come from the page cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from plaza.core.errors import Conflict
from plaza.core.http.access import PUBLIC, SESSION
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.paging import Page
from plaza.sessions.cookies import client_from
from plaza.sessions.service import Sessions
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.items import Items
from plaza.shop.model import (
    MAX_QUANTITY,
    NEXT_STATES,
    Cart,
    Item,
    ItemId,
    NewOrder,
    NewQuantity,
    OrderId,
    PriceChanged,
)
from plaza.shop.order_history import OrderHistory
from plaza.shop.views import Views
from plaza.web import forms
from plaza.web.page_responses import PageResponses
from plaza.web.page_routes import PageRoutes
from plaza.web.product_html import ProductPages, item_tiles
from plaza.web.rendering import tabs
from plaza.web.text_html import next_page_link
from plaza.web.visitors import Visitor

page = PageRoutes()

# What happens to an order that is not cancelled.
ORDER_STEPS: Final = [state for state in NEXT_STATES if state != "cancelled"]

ITEMS_PER_PAGE: Final = 24

TABS: Final = (
    ("New", "/app/shop"),
    ("Popular", "/app/shop/popular"),
    ("Viewed", "/app/shop/seen"),
    ("Cart", "/app/shop/cart"),
    ("Orders", "/app/shop/orders"),
)


def _tabs(current: str) -> dict[str, Any]:
    return {"tabs": tabs("Shop", TABS, current), "section": "Shop"}


def _items_page(
    request: Request, site: PageResponses, visitor: Visitor, tab: str, items: Sequence[Item], **context: str
) -> Response[str]:
    values: dict[str, Any] = {"title": tab, "more": "", "empty": "No items yet.", **_tabs(tab), **context}
    return site.page(request, visitor, "shop.html", rows=item_tiles(items), **values)


@page.get("/shop", access=PUBLIC)
async def shop(request: Request, site: PageResponses, items: Items, cursor: str | None = None) -> Response[str]:
    """List items, newest first."""
    visitor = await site.visitors.from_request(request)
    found = await items.page(Page(limit=ITEMS_PER_PAGE, cursor=cursor))
    more = next_page_link("/app/shop", found.pagination, "More")
    return _items_page(request, site, visitor, "New", found.items, title="Shop", more=more)


@page.get("/shop/popular", access=PUBLIC)
async def popular(request: Request, site: PageResponses, views: Views, cursor: str | None = None) -> Response[str]:
    """List items, most viewed first."""
    visitor = await site.visitors.from_request(request)
    found = await views.popular(Page(limit=ITEMS_PER_PAGE, cursor=cursor))
    more = next_page_link("/app/shop/popular", found.pagination, "More")
    return _items_page(request, site, visitor, "Popular", found.items, more=more)


@page.get("/shop/seen", access=SESSION)
async def recently_viewed(request: Request, site: PageResponses, views: Views) -> Response[str]:
    """List the items that this visitor has viewed, latest first."""
    visit, found = await views.recently_viewed(client_from(request), Page(limit=ITEMS_PER_PAGE))
    visitor = await site.visitors.from_visit(request, visit)
    context = {"title": "Recently viewed", "empty": "You have not viewed any items yet."}
    return _items_page(request, site, visitor, "Viewed", found.items, **context)


@page.get("/shop/items/{id}", access=SESSION)
async def item(
    request: Request, site: PageResponses, id: ItemId, views: Views, products: ProductPages
) -> Response[str]:
    """Show an item and count the view. The part that all visitors share comes from the page cache."""
    visit, found = await views.view(client_from(request), id)
    visitor = await site.visitors.from_visit(request, visit)
    product, cache_status = await products.render_item(found)
    context: dict[str, Any] = {"item": found, "product": product, "max_quantity": min(found.qty, MAX_QUANTITY)}
    response = site.page(request, visitor, "item.html", section="Shop", **context)
    response.headers = (*response.headers, ("cache-status", cache_status))
    return response


@page.get("/shop/cart", access=SESSION)
async def cart(request: Request, site: PageResponses, carts: Carts) -> Response[str]:
    """Show the cart with current prices."""
    visit, found = await carts.read(client_from(request))
    visitor = await site.visitors.from_visit(request, visit)
    return site.page(request, visitor, "cart.html", cart=found, problem="", **_tabs("Cart"))


@page.post("/shop/cart/{id}", access=SESSION)
async def set_quantity(request: Request, body: bytes, site: PageResponses, id: ItemId, carts: Carts) -> Response[str]:
    """Set the quantity of an item in the cart; 0 removes it."""
    visit, found = await carts.put(client_from(request), id, forms.read_form(body, NewQuantity).qty)
    visitor = await site.visitors.from_visit(request, visit)
    context: dict[str, Any] = {"message": _quantity_message(found, id), "cart": found}
    return site.form_response(request, visitor, body, "/app/shop/cart", "cart-changed.html", **context)


def _quantity_message(cart: Cart, id: int) -> str:
    line = next((line for line in cart.items if line.id == id), None)
    return "Removed from the cart." if line is None else f"{line.qty} in the cart."


@page.get("/shop/checkout", access=SESSION)
async def confirm_order(request: Request, site: PageResponses, carts: Carts) -> Response[str]:
    """Show what will be ordered, and its total, before the order is placed."""
    visit, found = await carts.read(client_from(request))
    visitor = await site.visitors.from_visit(request, visit)
    return site.page(request, visitor, "checkout.html", cart=found, problem="", **_tabs("Cart"))


@page.post("/shop/checkout", access=SESSION)
async def check_out(
    request: Request, body: bytes, site: PageResponses, carts: Carts, checkout: Checkout
) -> Response[str]:
    """Order the cart at the total that the customer saw. A cart is ordered once."""
    wanted = forms.read_form(body, NewOrder)
    try:
        visit, order = await checkout.check_out(client_from(request), wanted)
    except Conflict as error:
        visit, found = await carts.read(client_from(request))
        visitor = await site.visitors.from_visit(request, visit)
        context: dict[str, Any] = {"cart": found, "problem": error.detail, **_tabs("Cart")}
        template = "checkout.html" if isinstance(error, PriceChanged) else "cart.html"
        return site.page(request, visitor, template, status=error.status, return_path="/app/shop/cart", **context)
    visitor = await site.visitors.from_visit(request, visit)
    return site.form_response(request, visitor, b"", f"/app/shop/orders/{order.id}")


@page.get("/shop/orders", access=SESSION)
async def own_orders(
    request: Request, site: PageResponses, sessions: Sessions, orders: OrderHistory, cursor: str | None = None
) -> Response[str]:
    """List your orders, newest first. For guests these are the orders of the session."""
    visit = await sessions.visit(client_from(request))
    visitor = await site.visitors.from_visit(request, visit)
    found = await orders.page(visit, Page(cursor=cursor))
    more = next_page_link("/app/shop/orders", found.pagination)
    return site.page(request, visitor, "orders.html", orders=found.orders, more=more, **_tabs("Orders"))


@page.get("/shop/orders/{id}", access=SESSION)
async def own_order(
    request: Request, site: PageResponses, sessions: Sessions, orders: OrderHistory, id: OrderId
) -> Response[str]:
    """Show one of your orders."""
    visit = await sessions.visit(client_from(request))
    visitor = await site.visitors.from_visit(request, visit)
    found = await orders.read(visit, id)
    return site.page(request, visitor, "order.html", order=found, steps=ORDER_STEPS, **_tabs("Orders"))
