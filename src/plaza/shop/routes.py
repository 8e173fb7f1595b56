"""The shop over HTTP."""

from __future__ import annotations

from typing import TypeVar

from plaza.caching.middleware import asks_for_uncached
from plaza.caching.page_store import is_not_modified
from plaza.core.http.access import ADMIN, PUBLIC, SESSION
from plaza.core.http.request import Request
from plaza.core.http.responses import Response
from plaza.core.http.routes import Routes
from plaza.core.paging import Page
from plaza.sessions.cookies import caller, clear_cookie, set_cookie, token_of
from plaza.sessions.service import Sessions, Visit
from plaza.shop.cache_admin import CacheAdmin
from plaza.shop.carts import Carts
from plaza.shop.items import Items
from plaza.shop.model import (
    CacheState,
    Cart,
    Item,
    ItemChange,
    ItemId,
    ItemsPage,
    Login,
    NewDelay,
    NewItem,
    NewQuantity,
    Order,
    OrdersPage,
    RowSchedule,
    Session,
    SessionId,
    SessionsPage,
)
from plaza.shop.orders import Orders
from plaza.shop.storefront import HTML, Storefront
from plaza.shop.views import Views

T = TypeVar("T")

route = Routes("shop", prefix="/shop", about="Sessions, items, carts and orders, and the caches in front of them.")


def answer(request: Request, sessions: Sessions, visit: Visit, body: T, *, status: int | None = None) -> Response[T]:
    """An answer to a session's request, with its cookie if the session is new."""
    cookie = [set_cookie(request, visit.token, sessions.limits.absolute)] if visit.new else []
    return Response(body, status=status, headers=cookie)


@route.post("/session", access=SESSION, other_responses={201: Session})
async def session(request: Request, sessions: Sessions) -> Response[Session]:
    """The session of the cookie; a new one, 201, if there is none. It goes on for a week after it was last seen."""
    visit, _ = await sessions.visit(token_of(request))
    return answer(request, sessions, visit, sessions.session(visit), status=201 if visit.new else None)


@route.post("/login", access=SESSION)
async def login(body: Login, request: Request, sessions: Sessions) -> Response[Session]:
    """Sign in: the token changes, and a guest's cart joins the account's."""
    visit = await sessions.login(token_of(request), body, request.address)
    return answer(request, sessions, visit, sessions.session(visit))


@route.post("/logout", access=SESSION, status=204)
async def logout(request: Request, sessions: Sessions) -> Response[None]:
    """End the session. The account's cart stays for the next login."""
    await sessions.logout(token_of(request))
    return Response(None, headers=[clear_cookie(request)])


@route.get("/sessions", access=SESSION)
async def own_sessions(request: Request, page: Page, sessions: Sessions) -> Response[SessionsPage]:
    """One's own sessions, the newest first; of a guest only this one."""
    visit, _ = await sessions.visit(token_of(request))
    return answer(request, sessions, visit, await sessions.page(visit, page))


@route.delete("/sessions/{id}", access=SESSION, status=204)
async def end_session(id: SessionId, request: Request, sessions: Sessions) -> Response[None]:
    """End one of one's own sessions."""
    visit, _ = await sessions.visit(token_of(request))
    await sessions.end_own(visit, id)
    return answer(request, sessions, visit, None)


@route.post("/items", access=ADMIN, status=201, idempotent=True)
async def create_item(body: NewItem, request: Request, items: Items) -> Item:
    """Offer an item: for admins. Prices are decimals as text."""
    return await items.create(body, request.operation)


@route.patch("/items/{id}", access=ADMIN)
async def change_item(id: ItemId, body: ItemChange, items: Items) -> Item:
    """Change an item: for admins. Its cached row and pages follow at once."""
    return await items.change(id, body)


@route.get("/items", access=PUBLIC)
async def list_items(page: Page, items: Items) -> ItemsPage:
    """Items, the newest first."""
    return await items.page(page)


@route.get("/items/popular", access=PUBLIC)
async def popular(page: Page, views: Views) -> ItemsPage:
    """Items, the most viewed first."""
    return await views.popular(page)


@route.get("/items/{id}", access=SESSION)
async def view(id: ItemId, request: Request, sessions: Sessions, views: Views) -> Response[Item]:
    """An item, which counts as a view. `stale` says that the database is away and this is how it last was."""
    visit, item = await views.view(token_of(request), id)
    return answer(request, sessions, visit, item)


@route.get("/recently-viewed", access=SESSION)
async def recently_viewed(request: Request, page: Page, sessions: Sessions, views: Views) -> Response[ItemsPage]:
    """What this session has looked at, the newest first, 25 at most."""
    visit, found = await views.recently(token_of(request), page)
    return answer(request, sessions, visit, found)


@route.get("/cart", access=SESSION)
async def cart(request: Request, sessions: Sessions, carts: Carts) -> Response[Cart]:
    """The cart, at today's prices."""
    visit, found = await carts.read(token_of(request))
    return answer(request, sessions, visit, found)


@route.put("/cart/items/{id}", access=SESSION)
async def put_in_cart(
    id: ItemId, body: NewQuantity, request: Request, sessions: Sessions, carts: Carts
) -> Response[Cart]:
    """Want so many of an item, 1 to 999; 0 removes it."""
    visit, found = await carts.put(token_of(request), id, body.qty)
    return answer(request, sessions, visit, found)


@route.delete("/cart/items/{id}", access=SESSION)
async def take_from_cart(id: ItemId, request: Request, sessions: Sessions, carts: Carts) -> Response[Cart]:
    """Take an item out of the cart."""
    visit, found = await carts.put(token_of(request), id, 0)
    return answer(request, sessions, visit, found)


@route.post("/checkout", access=SESSION, status=201, idempotent=True, idempotency_scope=caller)
async def check_out(request: Request, sessions: Sessions, orders: Orders) -> Response[Order]:
    """Order what is in the cart, at the prices of now. One cart makes one order; 409 if there is not enough left."""
    visit, order = await orders.check_out(token_of(request))
    return answer(request, sessions, visit, order)


@route.get("/orders", access=SESSION)
async def own_orders(request: Request, page: Page, sessions: Sessions, orders: Orders) -> Response[OrdersPage]:
    """One's own orders, the newest first; a guest's are those of this session."""
    visit, _ = await sessions.visit(token_of(request))
    return answer(request, sessions, visit, await orders.page(visit, page))


@route.get("/cache", access=ADMIN)
async def cache_state(page: Page, caching: CacheAdmin) -> CacheState:
    """The rows that are copied regularly, and how late the worker is: for admins."""
    return await caching.state(page)


@route.put("/cache/rows/{id}", access=ADMIN)
async def schedule_row(id: ItemId, body: NewDelay, caching: CacheAdmin) -> RowSchedule:
    """Copy an item's row every `delay` seconds; 0 or less takes it out of the cache: for admins."""
    return await caching.schedule(id, body.delay)


@route.delete("/cache/rows/{id}", access=ADMIN, status=204)
async def remove_row(id: ItemId, caching: CacheAdmin) -> None:
    """Take an item's row out of the cache: for admins."""
    await caching.remove(id)


@route.get("/pages/items/{id}", access=PUBLIC, media_type=HTML, ignores_unknown_query=True)
async def item_page(id: ItemId, request: Request, storefront: Storefront) -> Response[str]:
    """The page of an item for people, through the page cache: `Cache-Status`, `ETag`, 304."""
    own = "unwanted" if asks_for_uncached(request.scope["query_string"]) else ""
    if any(name in request.headers for name in ("authorization", "x-authorization", "x-access-token", "x-api-key")):
        own = "personal"
    served = await storefront.item(id, token_of(request), own=own)
    headers = [
        *served.headers("plaza"),
        ("vary", "cookie, authorization"),
        ("cache-control", "private, no-cache" if served.personal else "no-cache"),
    ]
    if is_not_modified(served.etag, request.headers.get("if-none-match")):
        return Response(None, status=304, headers=headers)
    return Response(served.page.body, headers=headers)
