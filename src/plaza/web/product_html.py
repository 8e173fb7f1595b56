"""Items as HTML. The part of a product page that is the same for all visitors comes from the page cache: it is rendered
once and dropped when the item changes. The frame around it belongs to one visitor and is not cached.

In lists an item is a tile, cached in the process (`fragment_cache.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from plaza.caching.library import BRIEF_SECONDS
from plaza.caching.page_cache import Computation, PageCache
from plaza.caching.page_store import CachedPage, page_hash
from plaza.shop.items import page_tag
from plaza.shop.model import Item
from plaza.web import assets
from plaza.web.fragment_cache import cached_fragment
from plaza.web.rendering import render


def item_tiles(items: Iterable[Item]) -> bytes:
    """The items of a list."""
    return b"".join([_cached_tile[item.id, item.name, item.price, item.qty, *_first_picture(item)] for item in items])


def _first_picture(item: Item) -> tuple[str, str]:
    """The id and the blurhash of the picture that lists show."""
    return (item.media[0].id, item.media[0].blurhash) if item.media else ("", "")


@cached_fragment()
def _cached_tile(id: int, name: str, price: str, qty: int, picture: str, blurhash: str) -> bytes:
    shown = {"id": picture, "blurhash": blurhash} if picture else None
    item = {"id": id, "name": name, "price": price, "qty": qty, "picture": shown}
    return render("item-tile.html", item=item).encode()


class ProductPages:
    """The shared part of product pages."""

    def __init__(self, pages: PageCache, currency: str) -> None:
        self._pages = pages
        self._currency = currency

    async def render_item(self, item: Item) -> tuple[Markup, str]:
        """Return an item as HTML and the `Cache-Status` value (RFC 9211). No round trip if it is cached here."""

        async def compute(_: Computation) -> CachedPage:
            body = render("product.html", item=item).encode()
            fresh = BRIEF_SECONDS if item.stale else None
            return CachedPage(body, tags=(page_tag(item.id),), fresh_seconds=fresh)

        # Another version of Plaza may render it differently.
        name = page_hash([f"/app/shop/items/{item.id}", assets.VERSION, self._currency])
        served = await self._pages.serve(name, compute, str(item.id))
        assert served is not None, "this page is always rendered by `compute`"
        body = served.page.body.decode(errors="replace")  # another service may have written the cached page
        return Markup(body), f"plaza; {served.cache_status}"  # noqa: S704 rendered by our template
