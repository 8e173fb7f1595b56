"""How the shop plugs in, with the sessions that it keeps data in."""

from __future__ import annotations

from plaza.caching.item_views import ItemViews
from plaza.caching.page_cache import PageCache
from plaza.caching.row_cache import RowCache
from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.core.paging import Snapshots
from plaza.core.pictures import ITEM
from plaza.sessions import jobs as session_jobs
from plaza.sessions import routes as session_routes
from plaza.sessions.model import SessionLimits
from plaza.sessions.offers import SessionOffers
from plaza.sessions.service import Sessions
from plaza.sessions.session_cache import SessionCache
from plaza.sessions.session_finder import SessionFinder
from plaza.sessions.session_store import SessionStore
from plaza.sessions.sign_in import SignIn
from plaza.shop import jobs, routes, routes_operator
from plaza.shop.cart_counts import CartCounts
from plaza.shop.carts import Carts
from plaza.shop.checkout import Checkout
from plaza.shop.events import EVENTS
from plaza.shop.invariants import INVARIANTS
from plaza.shop.item_desk import ItemDesk
from plaza.shop.item_pages import Storefront
from plaza.shop.item_pictures import ItemPictures
from plaza.shop.items import Items, row_loader
from plaza.shop.library import LIBRARY, SESSION_DATA
from plaza.shop.notification_source import OrderNotifications
from plaza.shop.order_desk import OrderDesk
from plaza.shop.order_history import OrderHistory
from plaza.shop.personal_data import PERSONAL_KEYS, ShopPersonalData
from plaza.shop.row_schedules import RowSchedules
from plaza.shop.search_source import ItemSearch
from plaza.shop.views import Views


def build(core: Core) -> Parts:
    """Build the services of the shop and of sessions."""
    settings = core.settings
    limits = SessionLimits(settings.shop_idle_seconds, settings.shop_absolute_seconds, settings.shop_sessions)
    offers = SessionOffers(core.clock, settings.secret("jwt_secret"))
    store = SessionStore(
        core.functions, core.clock, SESSION_DATA, core.auth.revocations, limits, offers, settings.account_address
    )
    finder = SessionFinder(store, core.limiter)
    sessions = Sessions(finder, core.provided.account_log)
    rows, pages = RowCache(core.functions, row_loader(core.sql)), PageCache(core.functions)
    items = Items(core.sql, rows, pages.purge, core.clock, core.provided.pictures)
    orders = OrderHistory(core.sql, settings.currency)
    order_desk = OrderDesk(core.sql, items, core.clock, settings.currency)
    checkout = Checkout(core.sql, finder, items, orders, core.clock)
    item_views = ItemViews(core.functions, core.clock)
    services = [
        sessions,
        SignIn(finder, core.provided.passwords, on_replaced=checkout.finish_for_guest),
        SessionCache(finder),
        items,
        Views(finder, items, item_views, Snapshots(core.valkey, core.clock)),
        Carts(finder, items),
        checkout,
        orders,
        order_desk,
        ItemDesk(core.sql, items, core.clock),
        RowSchedules(core.functions, items, core.clock),
        Storefront(items, pages, item_views, settings.currency),
        CartCounts(core.valkey),
    ]
    return Parts(
        services,
        Provided(sessions=sessions, picture_hosts={ITEM: ItemPictures(core.sql, items)}),
        timers=[*session_jobs.timers(sessions), *jobs.timers(item_views)],
        worker_loops={"shop.rows": rows.worker.copy_due},
        personal_data=ShopPersonalData(sessions, orders, order_desk),
        personal_keys=PERSONAL_KEYS,
        notification_sources=[OrderNotifications(core.sql, settings.currency)],
        search_sources=[ItemSearch(core.sql, items)],
    )


DOMAIN = Domain(
    LIBRARY,
    [session_routes.route, routes.route, routes_operator.route],
    build,
    INVARIANTS,
    EVENTS,
    requires=["caching"],
)
