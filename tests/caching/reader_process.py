"""A process with many readers of one page and one row, for `test_processes.py`. It counts computations in Valkey."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from plaza.caching.page_cache import Computation, PageCache
from plaza.caching.page_store import CachedPage, page_hash
from plaza.caching.row_cache import RowCache
from plaza.caching.standalone import connect

READERS = 100
# Long enough that all processes' readers come while the first computes.
SLOW_SECONDS = 0.5


async def main(url: str) -> None:
    async with connect(url) as store:

        async def compute(_: Computation) -> CachedPage:
            n = await store.valkey.call("INCR", "pages computed")
            await asyncio.sleep(SLOW_SECONDS)
            return CachedPage(f"<p>{n}</p>".encode())

        async def load(ids: Sequence[str]) -> Mapping[str, dict[str, Any]]:
            n = await store.valkey.call("INCR", "rows loaded")
            await asyncio.sleep(SLOW_SECONDS)
            return {id: {"n": n} for id in ids}

        pages, rows = PageCache(store), RowCache(store, load)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        served = await asyncio.gather(*(pages.serve(page_hash(["page"]), compute) for _ in range(READERS)))
        found = await asyncio.gather(*(rows.get("1") for _ in range(READERS)))
        bodies = {one.page.body.decode() for one in served if one is not None}
        print(*bodies, *{row.json for row in found if row is not None}, flush=True)
        await pages.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
