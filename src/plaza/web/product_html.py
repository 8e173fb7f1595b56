"""What a product page shows to everybody, through the shop's page cache: computed once, kept while people look at the
item, dropped the moment the item changes. The frame around it is each visitor's own, and is not kept.

In lists an item is a tile, kept in the process by what it says (`keeping.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from plaza.caching.page_cache import PageCache
from plaza.caching.page_store import CachedPage, page_hash
from plaza.caching.row_store import BRIEF_SECONDS
from plaza.shop.items import tag_of
from plaza.shop.model import Item
from plaza.web import assets
from plaza.web.fragment_cache import kept
from plaza.web.rendering import render


def tiles(items: Iterable[Item]) -> bytes:
    """The items of a page."""
    return b"".join([_tile[item.id, item.name, item.price, item.qty] for item in items])


@kept()
def _tile(id: int, name: str, price: str, qty: int) -> bytes:
    return render("tile.html", item={"id": id, "name": name, "price": price, "qty": qty}).encode()


class Products:
    """The middle of product pages."""

    def __init__(self, pages: PageCache) -> None:
        self._pages = pages

    async def shown(self, item: Item) -> tuple[Markup, str]:
        """An item as HTML, and what the cache did for it (RFC 9211). No round trip if this process has it at hand."""

        async def compute(_: bool) -> CachedPage:
            body = render("product.html", item=item).encode()
            fresh = BRIEF_SECONDS if item.stale else None
            return CachedPage(body, tags=(tag_of(item.id),), fresh_seconds=fresh)

        # Another version of Plaza may draw it otherwise.
        name = page_hash([f"/app/shop/items/{item.id}", assets.VERSION])
        served = await self._pages.serve(name, compute, str(item.id))
        assert served is not None, "a page of ours is never sent by other means"
        return Markup(served.page.body.decode()), f"plaza; {served.cache_status}"  # noqa: S704 made by our template
