"""The HTML pages of items, through the page cache."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from plaza.caching.item_views import ItemViews
from plaza.caching.library import BRIEF_SECONDS
from plaza.caching.page_cache import Computation, PageCache
from plaza.caching.page_store import CachedPage, ServedPage, page_etag, page_hash
from plaza.sessions.keys import LOGIN_TOKENS
from plaza.shop.items import Items, page_tag
from plaza.shop.model import Item

if TYPE_CHECKING:
    import jinja2
from plaza.shop.money import format_money

_TEMPLATES = files("plaza.shop").joinpath("templates")
_STYLE: Final = _TEMPLATES.joinpath("item.css").read_text()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HTML: Final = "text/html; charset=utf-8"
# The style is inline, pictures are Plaza's own, and nothing else may run or load.
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)


@cache
def _item_template() -> jinja2.Template:
    import jinja2  # commands and workers need none of it

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _TEMPLATES.joinpath(name).read_text()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("item.html")


class Storefront:
    """PageCache of items."""

    def __init__(self, items: Items, pages: PageCache, item_views: ItemViews, currency: str) -> None:
        self._items = items
        self._item_views = item_views
        self._currency = currency
        self._pages = pages
        self._valkey = pages.functions.valkey

    async def item_page(self, id: int, token: str | None, *, bypass_reason: str = "") -> ServedPage:
        """Return the page of an item and count a view. One round trip more than the page itself, cached or not.

        Every reader gets the same page, so the view is counted for the item and not for a session. The cache key is the
        item alone, without host and parameters, so made-up parameters cannot fill the cache.
        """

        served = await self._serve(id, token, bypass_reason)
        await self._item_views.count(id)  # only now: the item exists
        return served

    async def _serve(self, id: int, token: str | None, bypass_reason: str) -> ServedPage:
        async def compute(_: Computation) -> CachedPage:
            return self._render(await self._items.read(id))

        if not bypass_reason and token is not None and await self._valkey.call("HEXISTS", LOGIN_TOKENS(), token):
            bypass_reason = "personal"
        if bypass_reason:
            page, status = await compute(Computation()), f"fwd=bypass; detail={bypass_reason}"
            return ServedPage(page, page_etag(page), status, personal=bypass_reason == "personal")
        served = await self._pages.serve(page_hash([f"/shop/pages/items/{id}", self._currency]), compute, str(id))
        assert served is not None, "compute() always returns a page"
        return served

    def _render(self, item: Item) -> CachedPage:
        body = (
            _item_template()
            .render(
                item=item,
                price=format_money(item.price, self._currency),
                style=Markup(_STYLE),  # noqa: S704 a file of this package
            )
            .encode()
        )
        # While the database is unavailable, a stale item is cached only briefly.
        fresh = BRIEF_SECONDS if item.stale else None
        return CachedPage(
            body, headers=(("content-security-policy", _POLICY),), tags=(page_tag(item.id),), fresh_seconds=fresh
        )
