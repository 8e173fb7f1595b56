"""The shop over HTTP."""

from __future__ import annotations

from plaza.caching.middleware import asks_for_uncached
from plaza.caching.page_store import is_not_modified
from plaza.core.auth import Actor
from plaza.core.errors import Conflict, Gone, Unauthenticated
from plaza.core.http.access import ADMIN, PUBLIC, SESSION
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.sessions.cookies import client_from, idempotency_caller, token_from
from plaza.sessions.model import SessionReplaced
from plaza.sessions.routes import session_response
from plaza.sessions.service import Sessions
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.item_pages import HTML, Storefront
from plaza.shop.items import Items
from plaza.shop.model import (
    CacheState,
    Cart,
    CartFull,
    EmptyCart,
    Item,
    ItemChange,
    ItemChanged,
    ItemId,
    ItemsPage,
    NewDelay,
    NewItem,
    NewOrder,
    NewQuantity,
    Order,
    OrdersPage,
    OutOfStock,
    PriceChanged,
    RowSchedule,
)
from plaza.shop.order_history import OrderHistory
from plaza.shop.row_schedules import RowSchedules
from plaza.shop.views import Views

route = Routes("shop", prefix="/shop", about="Items, carts and orders, and the caches in front of them.")

_CREDENTIALS = ("authorization", "x-authorization", "x-access-token", "x-api-key")


@route.post(
    "/items",
    access=ADMIN,
    status=201,
    idempotent=True,
    logged_fields=("name", "price", "qty"),
    example={"name": "Lamp", "description": "Warm light.", "price": "19.90", "qty": 10},
)
async def create_item(actor: Actor, body: NewItem, request: Request, items: Items) -> Item:
    """Create an item. Its price is a decimal as text."""
    return await items.create(body, request.row_operation, actor)


@route.patch(
    "/items/{id}",
    access=ADMIN,
    logged_fields=("name", "price", "qty"),
    raises=[Conflict, ItemChanged],
    example={"price": "17.50"},
)
async def update_item(actor: Actor, id: ItemId, body: ItemChange, items: Items) -> Item:
    """Update an item, if it is as `expected`. The cached row and pages change at once."""
    return await items.change(id, body, actor)


@route.get("/items", access=PUBLIC)
async def list_items(page: Page, items: Items) -> ItemsPage:
    """List items, newest first."""
    return await items.page(page)


@route.get("/items/popular", access=PUBLIC, raises=[Gone])
async def list_popular_items(page: Page, views: Views) -> ItemsPage:
    """List popular items, the most viewed first."""
    return await views.popular(page)


@route.get("/items/{id}", access=SESSION)
async def get_item(id: ItemId, request: Request, sessions: Sessions, views: Views) -> Response[Item]:
    """Get an item and count a view. `stale` is true if the database is unavailable and the data may be outdated."""
    visit, item = await views.view(client_from(request), id)
    return session_response(request, sessions, visit, item)


@route.get("/recently-viewed", access=SESSION)
async def list_recently_viewed_items(
    request: Request, page: Page, sessions: Sessions, views: Views
) -> Response[ItemsPage]:
    """List the items that this session has viewed, newest first, at most 25."""
    visit, items = await views.recently_viewed(client_from(request), page)
    return session_response(request, sessions, visit, items)


@route.get("/cart", access=SESSION)
async def get_cart(request: Request, sessions: Sessions, carts: Carts) -> Response[Cart]:
    """Get the cart at current prices."""
    visit, cart = await carts.read(client_from(request))
    return session_response(request, sessions, visit, cart)


@route.put("/cart/items/{id}", access=SESSION, raises=[CartFull, SessionReplaced], example={"qty": 2})
async def set_cart_item(
    id: ItemId, body: NewQuantity, request: Request, sessions: Sessions, carts: Carts
) -> Response[Cart]:
    """Set the quantity of an item in the cart, 1 to 999; 0 removes it."""
    visit, cart = await carts.put(client_from(request), id, body.qty)
    return session_response(request, sessions, visit, cart)


@route.delete("/cart/items/{id}", access=SESSION, raises=[SessionReplaced])
async def remove_cart_item(id: ItemId, request: Request, sessions: Sessions, carts: Carts) -> Response[Cart]:
    """Remove an item from the cart."""
    visit, cart = await carts.put(client_from(request), id, 0)
    return session_response(request, sessions, visit, cart)


@route.post(
    "/checkout",
    access=SESSION,
    status=201,
    idempotent=True,
    idempotency_scope=idempotency_caller,
    raises=[EmptyCart, OutOfStock, PriceChanged, SessionReplaced, Unauthenticated],
    example={"expected_total": "39.80"},
)
async def check_out(body: NewOrder, request: Request, sessions: Sessions, checkout: Checkout) -> Response[Order]:
    """Order the cart at current prices. One cart makes one order; 409 without enough stock or at another total."""
    visit, order = await checkout.check_out(client_from(request), body, request.row_operation)
    return session_response(request, sessions, visit, order)


@route.get("/orders", access=SESSION)
async def list_orders(request: Request, page: Page, sessions: Sessions, orders: OrderHistory) -> Response[OrdersPage]:
    """List your orders, newest first. A guest sees those of this session."""
    visit = await sessions.visit(client_from(request))
    return session_response(request, sessions, visit, await orders.page(visit, page))


@route.get("/cache", access=ADMIN)
async def get_row_cache(page: Page, cache: RowSchedules) -> CacheState:
    """List the scheduled rows of the row cache, and how late the worker is."""
    return await cache.state(page)


@route.put("/cache/rows/{id}", access=ADMIN, logged_fields=("delay",), example={"delay": 60})
async def schedule_cached_row(id: ItemId, body: NewDelay, cache: RowSchedules) -> RowSchedule:
    """Copy an item's row to the cache every `delay` seconds; 0 or less removes it."""
    return await cache.schedule(id, body.delay)


@route.delete("/cache/rows/{id}", access=ADMIN, status=204)
async def remove_cached_row(id: ItemId, cache: RowSchedules) -> None:
    """Remove an item's row from the cache."""
    await cache.remove(id)


@route.get("/pages/items/{id}", access=PUBLIC, media_type=HTML, ignores_unknown_query=True)
async def get_item_page(id: ItemId, request: Request, storefront: Storefront) -> Response[str]:
    """Get the HTML page of an item through the page cache, with `Cache-Status` and `ETag`."""
    bypass_reason = "unwanted" if asks_for_uncached(request.query_string) else ""
    if any(name in request.headers for name in _CREDENTIALS):
        bypass_reason = "personal"
    served = await storefront.item_page(id, token_from(request), bypass_reason=bypass_reason)
    headers = [
        *served.headers("plaza"),
        ("vary", "cookie, authorization"),
        ("cache-control", "private, no-cache" if served.personal else "no-cache"),
    ]
    if is_not_modified(served.etag, request.headers.get("if-none-match")):
        return Response(None, status=304, headers=headers)
    return Response(served.page.body, headers=headers)
