"""A cache of database rows and a cache of pages. Both need only a Valkey, so any application can use them.

Of many readers that miss the same row or page, in any number of processes, one computes it. The others get the
previous version, or wait if there is none. A change is visible at once.
"""

from plaza.caching.middleware import PageCacheMiddleware
from plaza.caching.page_cache import Computation, PageCache
from plaza.caching.page_cache_client import PageCacheClient
from plaza.caching.page_store import CachedPage, PageCacheOptions, page_hash
from plaza.caching.request_key import RequestKey
from plaza.caching.row_cache import RowCache
from plaza.caching.row_store import CachedRow
from plaza.caching.row_worker import RowWorker
from plaza.caching.standalone import connect

__all__ = [
    "CachedPage",
    "CachedRow",
    "Computation",
    "PageCache",
    "PageCacheClient",
    "PageCacheMiddleware",
    "PageCacheOptions",
    "RequestKey",
    "RowCache",
    "RowWorker",
    "connect",
    "page_hash",
]
