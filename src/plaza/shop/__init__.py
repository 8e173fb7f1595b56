"""Sessions, carts, orders, and two caches that are also a library of their own.

What it promises: a session that has ended never comes back; a cart is not lost at login and makes one order; the last
piece is sold once, however many ask for it; a row or page that many miss at once is computed once, and shown as it was
while that takes long; and what has changed is shown as it is now.

`RowCache`, `PageCache` and `connect` need nothing but a Valkey.
"""

from plaza.shop.middleware import PageCache
from plaza.shop.pages import Page, Pages, Rules
from plaza.shop.rows import Row, RowCache
from plaza.shop.store import connect

__all__ = ["Page", "PageCache", "Pages", "Row", "RowCache", "Rules", "connect"]
