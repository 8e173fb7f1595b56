"""A page cache that connects when it is first used: what middleware reads from, and the handle to purge pages."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from plaza.caching.page_cache import PageCache
from plaza.caching.page_store import PageCacheOptions
from plaza.caching.standalone import open_functions
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions

# After a failed connection attempt, requests bypass the cache for this long.
RECONNECT_SECONDS: Final = 1.0


class PageCacheClient:
    """Connects to the pages in a Valkey, given by its address or by a connected `Functions`."""

    def __init__(self, store: str | Functions, options: PageCacheOptions | None = None, *, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix  # of all keys; a connected `Functions` has its own
        self._options = options or PageCacheOptions()
        self._connecting: asyncio.Task[PageCache] | None = None
        self._retry_at = 0.0
        self.pages: PageCache | None = None if isinstance(store, str) else PageCache(store, self._options)

    async def purge(self, tag: str) -> int:
        """Drop every page with a tag, in every process. Return how many were stored."""
        return await (await self.connected()).purge(tag)

    async def connected(self) -> PageCache:
        """Return the cache; the first request connects it. Concurrent requests share that attempt.

        After a failed attempt no request tries for a moment: an unreachable Valkey must not delay every response.
        """
        if self.pages is not None:
            return self.pages
        if self._connecting is None:
            if monotonic() < self._retry_at:
                raise Unavailable("The cache's Valkey did not respond a moment ago.")
            self._connecting = asyncio.create_task(self._connect())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> PageCache:
        assert isinstance(self._store, str)
        try:
            self.pages = PageCache(await open_functions(self._store, self._prefix), self._options)
        except Unavailable:
            self._retry_at = monotonic() + RECONNECT_SECONDS
            raise
        finally:
            self._connecting = None
        return self.pages

    async def close(self) -> None:
        """Finish renewals; close the connection if it was opened here. The next use opens it again."""
        pages = self.pages
        if pages is None:
            return
        await pages.close()
        if isinstance(self._store, str):
            self.pages = None
            await pages.functions.outbox.drain()
            await pages.functions.valkey.close()
