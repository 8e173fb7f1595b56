"""How the shop plugs in."""

from __future__ import annotations

from plaza.caching.item_views import ItemViews
from plaza.caching.page_cache import PageCache
from plaza.caching.row_cache import RowCache
from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.core.paging import Snapshots
from plaza.sessions.service import Limits, Sessions
from plaza.sessions.session_cache import Present
from plaza.shop.cache_admin import CacheAdmin
from plaza.shop.carts import Carts
from plaza.shop.invariants import INVARIANTS
from plaza.shop.items import Items, loader
from plaza.shop.jobs import timers
from plaza.shop.library import LIBRARY
from plaza.shop.orders import Orders
from plaza.shop.personal_data import Shoppers
from plaza.shop.routes import route
from plaza.shop.storefront import Storefront
from plaza.shop.views import Views


def build(core: Core) -> Parts:
    """The shop on an open core."""
    settings = core.settings
    limits = Limits(settings.shop_idle_seconds, settings.shop_absolute_seconds, settings.shop_sessions)
    sessions = Sessions(
        core.functions,
        core.clock,
        accounts=core.provided.passwords,
        revocations=core.auth.revocations,
        limits=limits,
    )
    rows, pages = RowCache(core.functions, loader(core.sql)), PageCache(core.functions)
    items = Items(core.sql, rows, pages.purge)
    orders = Orders(core.sql, sessions, items, core.clock)
    item_views = ItemViews(core.functions, core.clock)
    views = Views(sessions, items, item_views, Snapshots(core.valkey, core.clock))
    services = [
        sessions,
        Present(sessions, core.clock),
        items,
        views,
        Carts(sessions, items),
        orders,
        CacheAdmin(core.functions, items, core.clock),
        Storefront(items, pages),
    ]
    turns = {"shop.rows": rows.worker.copy_due}
    return Parts(
        services,
        Provided(sessions=sessions),
        worker_loops=turns,
        timers=timers(sessions, item_views),
        personal_data=Shoppers(sessions, orders),
    )


DOMAIN = Domain(LIBRARY, [route], build, INVARIANTS)
