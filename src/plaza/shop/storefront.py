"""The shop's pages for people, through the page cache."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final

import jinja2
from markupsafe import Markup

from plaza.caching.page_cache import PageCache
from plaza.caching.page_store import CachedPage, ServedPage, page_etag, page_hash
from plaza.caching.row_store import BRIEF_SECONDS
from plaza.shop.items import Items, tag_of
from plaza.shop.keys import SHOP_LOGINS
from plaza.shop.model import Item

_TEMPLATES = files("plaza.shop").joinpath("templates")
_STYLE: Final = _TEMPLATES.joinpath("item.css").read_text()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HTML: Final = "text/html; charset=utf-8"
# The page brings its style along, and nothing else may run or load.
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

_environment = jinja2.Environment(
    loader=jinja2.FunctionLoader(lambda name: _TEMPLATES.joinpath(name).read_text()),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
)


class Storefront:
    """PageCache of items."""

    def __init__(self, items: Items, pages: PageCache) -> None:
        self._items = items
        self._pages = pages
        self._valkey = pages.functions.valkey
        self._item_page = _environment.get_template("item.html")

    async def item(self, id: int, token: str | None, *, own: str = "") -> ServedPage:
        """The page of an item. One round trip if it is cached, one more for a request that brings a session.

        `own` says why it is not for the cache, if so. What makes a request the same as another is the item alone: the
        page depends on no host and no parameter, and whoever makes some up should not fill the cache with copies.
        """

        async def compute(_: bool) -> CachedPage:
            return self._render(await self._items.read(id))

        if not own and token is not None and await self._valkey.call("HEXISTS", SHOP_LOGINS(), token):
            own = "personal"
        if own:
            page = await compute(True)
            return ServedPage(page, page_etag(page), f"fwd=bypass; detail={own}", personal=own == "personal")
        served = await self._pages.serve(page_hash([f"/shop/pages/items/{id}"]), compute, str(id))
        assert served is not None, "a page of ours is never sent by other means"
        return served

    def _render(self, item: Item) -> CachedPage:
        body = self._item_page.render(item=item, style=Markup(_STYLE)).encode()  # noqa: S704 our own file
        # How an item was when the database went away is shown, but not for longer than needed.
        fresh = BRIEF_SECONDS if item.stale else None
        return CachedPage(
            body, headers=(("content-security-policy", _POLICY),), tags=(tag_of(item.id),), fresh_seconds=fresh
        )
