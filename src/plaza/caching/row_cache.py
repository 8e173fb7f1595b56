"""A cache of database rows in `inv:<id>`. `RowWorker` copies the scheduled ones regularly.

It needs only a Valkey and a function that loads rows, so it works in any application:

    async with connect("valkey://localhost") as store:
        rows = RowCache(store, load)            # async load(ids) -> {id: {"name": …}, …}
        await rows.schedule("273", delay=10)    # copy it every 10 s from now on …
        worker = asyncio.create_task(rows.worker.run())   # … in this and any number of other processes
        row = await rows.get("273")             # one round trip; row.stale says whether it may be outdated

While the database is slow or down, readers get the last row, marked as stale. Of many readers that miss the same row,
in any number of processes, one loads it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import Any, Final

import structlog
from msgspec import Struct

from plaza.caching.row_ids import RowIds
from plaza.caching.row_store import CachedRow, LoadRows, RowData, RowReply, RowStore
from plaza.caching.row_worker import RowWorker
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.functions import Functions
from plaza.core.tracking_cache import TrackingCache

log = structlog.get_logger("plaza.caching")

# How long a reader waits for the new row if there is a previous one to serve.
STALE_AFTER_SECONDS: Final = 0.25
# How long a reader waits if there is none: as long as a client would.
WAIT_SECONDS: Final = 10.0
# How often one process checks whether another has loaded the row.
POLL_SECONDS: Final = 0.02

# Rows cached in this process: about 5 MB.
MAX_LOCAL_ROWS: Final = 5_000


class _LocalRow(Struct, frozen=True):
    """A row cached in this process until Valkey reports a change."""

    row: CachedRow
    fresh_until_ms: float
    read_ms: float  # by Valkey's clock …
    read_monotonic: float  # … and by this process's monotonic clock, in seconds

    def is_fresh(self, clock: Clock | None) -> bool:
        now = self.read_ms + (monotonic() - self.read_monotonic) * 1000 if clock is None else clock.now_ms()
        return now <= self.fresh_until_ms


class RowCache:
    """Reads rows through Valkey. `parse_id` makes an id of its text, for `load`: `int`, `UUID`, or `str`."""

    def __init__(
        self,
        functions: Functions,
        load: LoadRows,
        *,
        parse_id: Callable[[str], Any] = str,
        clock: Clock | None = None,
    ) -> None:
        self._store = RowStore(functions, clock)
        self._ids = RowIds(parse_id)
        by_text = self._ids.loading_by_text(load)
        self.worker = RowWorker(self._store, by_text, self._ids)
        self._loader = _BatchLoader(by_text)
        self._loading: dict[str, asyncio.Task[CachedRow | None]] = {}
        self._process_id = secrets.token_hex(6)
        self._local: TrackingCache[_LocalRow] = TrackingCache(functions.valkey, MAX_LOCAL_ROWS)

    async def get(self, row_id: Hashable) -> CachedRow | None:
        """Return a row, or None if the database has none. One round trip, or none if this process has cached it."""
        id = self._ids.text(row_id)
        local = self._get_local(id)
        if local is not None:
            return local
        return await self._row_from(id, await self._store.read_tracked(id, lambda reply: self._keep(id, reply)))

    async def get_many(self, row_ids: Sequence[Hashable]) -> list[CachedRow | None]:
        """Return rows in the order of their ids. One round trip, and one query for all that are not cached."""
        ids = [self._ids.text(id) for id in row_ids]
        rows: dict[str, CachedRow | None] = {id: row for id in ids if (row := self._get_local(id)) is not None}
        replies = await self._store.read_many([id for id in dict.fromkeys(ids) if id not in rows])
        rows.update((id, reply.row) for id, reply in replies.items() if not reply.needs_load)
        # Tasks are expensive, so only rows that must be loaded get one.
        to_load = [id for id in replies if id not in rows]
        loaded = await asyncio.gather(*(self._row_from(id, replies[id]) for id in to_load))
        rows.update(zip(to_load, loaded, strict=True))
        return [rows[id] for id in ids]

    async def reload(self, row_id: Hashable) -> CachedRow | None:
        """Load a row from the database and replace the cached one."""
        id = self._ids.text(row_id)
        data = await self._loader.load(id)
        await self._store.fill(id, data)
        return CachedRow.from_data(data)

    async def load(self, row_id: Hashable) -> CachedRow | None:
        """Load a row from the database and cache it. If the database has none, what another service cached stays."""
        id = self._ids.text(row_id)
        data = await self._loader.load(id)
        if data is not None:
            await self._store.fill(id, data)
        return CachedRow.from_data(data)

    async def put(self, row_id: Hashable, data: RowData | None) -> None:
        """Store what the caller has just written to the database. None: the row was deleted. One round trip."""
        await self._store.fill(self._ids.text(row_id), data)

    async def schedule(self, row_id: Hashable, delay: float) -> None:
        """Copy a row every `delay` seconds, beginning now; 0 or less removes it from the cache. One round trip."""
        await self._store.schedule(self._ids.text(row_id), delay)

    def _get_local(self, id: str) -> CachedRow | None:
        local = self._local.get(self._store.keys.cached_row(id))
        return local.row if local is not None and local.is_fresh(self._store.clock) else None

    def _keep(self, id: str, reply: RowReply) -> None:
        if reply.state == "" and reply.row is not None and reply.fresh_until_ms is not None:
            self._local.put(
                self._store.keys.cached_row(id), _LocalRow(reply.row, reply.fresh_until_ms, reply.now_ms, monotonic())
            )

    async def _row_from(self, id: str, reply: RowReply) -> CachedRow | None:
        return await self._load(id, reply.row) if reply.needs_load else reply.row

    async def _load(self, id: str, previous: CachedRow | None) -> CachedRow | None:
        """Load the row, once for all readers of this process. A previous row is served if loading fails or is slow."""
        loading = self._loading.get(id)
        if loading is None:
            loading = self._loading[id] = asyncio.create_task(self._load_or_wait(id, previous))
            loading.add_done_callback(lambda task: self._finish_loading(id, task))
        if previous is None:
            return await asyncio.shield(loading)
        done, _ = await asyncio.wait([loading], timeout=STALE_AFTER_SECONDS)
        return loading.result() if done and loading.exception() is None else previous

    def _finish_loading(self, id: str, task: asyncio.Task[CachedRow | None]) -> None:
        del self._loading[id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("row_load_failed", id=id, error=str(error))

    async def _load_or_wait(self, id: str, previous: CachedRow | None) -> CachedRow | None:
        deadline = monotonic() + WAIT_SECONDS
        while True:
            reader = f"{self._process_id}-{secrets.token_hex(4)}"
            claim = await self._store.claim(id, reader)
            if claim == "yours":
                return await self._load_claimed(id, reader)
            if claim == "busy":
                if previous is not None:
                    return previous
                if monotonic() > deadline:
                    raise Unavailable("The database is slow. Try again shortly.")
                await asyncio.sleep(POLL_SECONDS)
            reply = await self._store.read(id)
            if not reply.needs_load:
                return reply.row

    async def _load_claimed(self, id: str, reader: str) -> CachedRow | None:
        try:
            data = await self._loader.load(id)
        except BaseException:
            await self._store.release(id, reader)
            raise
        await self._store.fill(id, data, reader=reader)
        return CachedRow.from_data(data)


class _BatchLoader:
    """Loads all rows that are requested in one turn of the event loop with one query."""

    def __init__(self, load: LoadRows) -> None:
        self._load = load
        self._requested: dict[str, asyncio.Future[RowData | None]] = {}
        self._queries: set[asyncio.Task[None]] = set()

    def load(self, id: str) -> asyncio.Future[RowData | None]:
        if not self._requested:
            asyncio.get_running_loop().call_soon(self._start_query)
        if id not in self._requested:
            self._requested[id] = asyncio.get_running_loop().create_future()
        return self._requested[id]

    def _start_query(self) -> None:
        requested, self._requested = self._requested, {}
        task = asyncio.create_task(self._query(requested))
        self._queries.add(task)  # the event loop keeps weak references only
        task.add_done_callback(self._queries.discard)

    async def _query(self, requested: dict[str, asyncio.Future[RowData | None]]) -> None:
        try:
            rows = await self._load(list(requested))
        except BaseException as error:
            for future in requested.values():
                if not future.done():
                    future.set_exception(error)
            return
        for id, future in requested.items():
            if not future.done():
                future.set_result(rows.get(id))
