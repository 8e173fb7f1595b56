"""A cache of whole pages in `cache:<hash>`. Concurrent requests compute a page once, and it is renewed early.

    fresh      The page is served. By XFetch, one of its readers may be chosen to renew it early, in the background:
               it is if `-cost · β · ln(random)` reaches the remaining time.
    expired    One request, of all processes, computes the page. The others get the previous version.
    missing    One request computes it. The others wait.
    purged     Something on the page has changed. The previous version is not served either.

The computing request holds a lease; if its process dies, another takes over after the lease. As soon as a response
turns out not to be cacheable, for example because it sets a cookie, or to be a stream, no request waits for it.

`middleware.py` puts this cache in front of any ASGI application. The shop's own pages use it directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any, Final

import structlog
from msgspec import Struct

from plaza.caching.page_store import (
    CachedPage,
    PageCacheOptions,
    PageStore,
    ServedPage,
    StoredPage,
    is_cacheable,
    page_etag,
)
from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.tracking_cache import TrackingCache

log = structlog.get_logger("plaza.caching")

# How often one process checks whether another has computed the page.
POLL_SECONDS: Final = 0.02
# Pages cached in this process: about 10 MB.
MAX_LOCAL_PAGES: Final = 1_000

_hits, _old, _computed, _passed = map(metrics.CACHE_PAGES.labels, ("hit", "old", "computed", "passed"))


async def _no_one_waits(not_cacheable: bool) -> None:
    """Do nothing: no request waits for an uncached page."""


class Computation(Struct, frozen=True):
    """The computation of a page, by the one request that may: `client_waits` for the result, or has an older page."""

    client_waits: bool = True
    _let_pass: Callable[[bool], Awaitable[None]] = _no_one_waits

    async def let_others_pass(self, *, not_cacheable: bool) -> None:
        """Let the requests that wait for the page compute it themselves: it is not cacheable, or takes long to send."""
        await self._let_pass(not_cacheable)


# Computes a page. None: the page went to the client that waits, and is not cacheable.
ComputePage = Callable[[Computation], Awaitable[CachedPage | None]]


class PageCache:
    """Serves pages through Valkey."""

    def __init__(
        self, functions: Functions, options: PageCacheOptions | None = None, clock: Clock | None = None
    ) -> None:
        self.functions = functions
        self._store = PageStore(functions, options or PageCacheOptions(), clock)
        self.purge = self._store.purge
        self._local: TrackingCache[StoredPage] = TrackingCache(functions.valkey, MAX_LOCAL_PAGES)
        self._waiting: dict[str, asyncio.Task[bool]] = {}
        self._renewals: set[asyncio.Task[None]] = set()

    async def serve(self, page: str, compute: ComputePage, item: str | None = None) -> ServedPage | None:
        """Return a page by its hash, cached or computed. No round trip if this process has cached it.

        With an `item` the page is stored only while that item is among the most viewed. None: `compute` sent it.
        """
        local = self._local.get(self._store.keys.cached_page(page))
        if local is not None:
            now = local.now_ms(self._store.clock)
            if now <= local.fresh_until_ms and not local.should_renew_early(now, self._store.options.beta):
                _hits.inc()
                return local.as_hit(now)
        request = secrets.token_hex(8)
        try:
            found = await self._find_or_claim(page, request, item)
        except Unavailable:
            found = "fwd=bypass; detail=store-away"  # without its cache the page is still served
        if isinstance(found, StoredPage):
            return await self._serve_stored(page, found, compute)
        if found:
            _passed.inc()
            return await self._serve_uncached(compute, found)
        _computed.inc()
        return await self._compute_and_store(page, request, compute, "fwd=uri-miss", client_waits=True)

    async def _find_or_claim(self, page: str, request: str, item: str | None) -> StoredPage | str:
        """Return the page; else why it is not cached, as a cache status; else "": this request must compute it."""
        while True:
            found = await self._store.read(page)
            if isinstance(found, StoredPage):
                return await self._keep(page, found)
            if found == "pass":
                return "fwd=miss; stored=?0; detail=not-storable"
            if item is not None and not await self._store.is_popular(item):
                return "fwd=bypass; detail=unpopular"
            claim = await self._store.claim(page, request)
            if claim == "yours":
                return ""
            if claim == "busy":
                await self._wait_for(page)

    async def _keep(self, page: str, found: StoredPage) -> StoredPage:
        """Cache a fresh page in this process until Valkey reports a change."""
        if not found.was_fresh or self._local.get(self._store.keys.cached_page(page)) is not None:
            return found

        async def read_fresh() -> StoredPage | None:
            stored = await self._store.read(page)
            return stored if isinstance(stored, StoredPage) and stored.was_fresh else None

        return await self._local.load(self._store.keys.cached_page(page), read_fresh) or found

    async def _serve_stored(self, page: str, found: StoredPage, compute: ComputePage) -> ServedPage:
        now = found.now_ms(self._store.clock)
        fresh = now <= found.fresh_until_ms
        (_hits if fresh else _old).inc()
        if fresh and not found.should_renew_early(now, self._store.options.beta):
            return found.as_hit(now)
        request = secrets.token_hex(8)
        if await self._store.claim(page, request, early=fresh) == "yours":
            self._run_in_background(self._renew(page, request, compute))
        return found.as_hit(now)

    async def _renew(self, page: str, request: str, compute: ComputePage) -> None:
        try:
            await self._compute_and_store(page, request, compute, "fwd=stale", client_waits=False)
        except Exception as error:  # the client has the previous page; the next request tries again
            log.warning("page_renewal_failed", error=str(error))

    async def _compute_and_store(
        self, page: str, request: str, compute: ComputePage, status: str, *, client_waits: bool
    ) -> ServedPage | None:
        """Compute a page and store it, under this request's claim."""
        started = monotonic()
        try:
            computed = await compute(Computation(client_waits, partial(self._let_pass, page, request)))
        except BaseException:
            await self._give_up(page, request, not_cacheable=False)
            raise
        if computed is None or not is_cacheable(computed):
            await self._give_up(page, request, not_cacheable=True)
            return None if computed is None else ServedPage(computed, "", f"{status}; stored=?0")
        etag = page_etag(computed)
        stored = await self._store.store(page, request, computed, etag, (monotonic() - started) * 1000)
        return ServedPage(computed, etag, f"{status}; stored" if stored else f"{status}; stored=?0")

    async def _let_pass(self, page: str, request: str, not_cacheable: bool) -> None:
        if not_cacheable:
            await self._give_up(page, request, not_cacheable=True)
            return
        with contextlib.suppress(Unavailable):  # then the lease expires
            await self._store.let_pass(page, request)

    async def _give_up(self, page: str, request: str, *, not_cacheable: bool) -> None:
        with contextlib.suppress(Unavailable):  # then the lease expires
            await self._store.give_up(page, request, not_cacheable=not_cacheable)

    async def _serve_uncached(self, compute: ComputePage, status: str) -> ServedPage | None:
        computed = await compute(Computation())
        if computed is None:
            return None
        return ServedPage(computed, page_etag(computed) if is_cacheable(computed) else "", status)

    async def _wait_for(self, page: str) -> None:
        """Wait until another request has stored the page or given up. One task polls for all waiters of the process."""
        waiting = self._waiting.get(page)
        if waiting is None:
            waiting = self._waiting[page] = asyncio.create_task(self._poll(page))
            waiting.add_done_callback(lambda _: self._waiting.pop(page, None))
        if not await asyncio.shield(waiting):
            raise Unavailable("Computing this page takes very long. Try again shortly.")

    async def _poll(self, page: str) -> bool:
        deadline = monotonic() + 2 * self._store.options.lease_seconds
        while monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            if await self._store.read(page) != "busy":
                return True
        return False

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def drain(self) -> None:
        """Wait for the pages that are being renewed, before the connection closes."""
        while self._renewals:
            await asyncio.gather(*self._renewals, return_exceptions=True)

    async def close(self) -> None:
        await self.drain()
        self._local.close()
