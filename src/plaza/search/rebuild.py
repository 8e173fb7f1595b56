"""Rebuilds the index from source data, beside a running server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from sqlalchemy import delete, select

from plaza.core.clock import Clock
from plaza.core.sql import Sql
from plaza.search.index import fits_column
from plaza.search.indexer import Indexer
from plaza.search.tables import SEARCH_REBUILD

# Keys of the index that are checked at once for objects that no longer exist.
CHECK_BATCH: Final = 500
# A rebuild that was interrupted longer ago begins again: it would skip what has changed in the part that it had done.
RESUME_MS: Final = 3_600_000

# Gets the name of a step, the number of keys that were processed, and how many keys the step has.
Show = Callable[[str, int, int], None]
# Gets a kind and the last key that was processed.
Save = Callable[[str, str], Awaitable[None]]


def _show_nothing(step: str, done: int, total: int) -> None: ...


class IndexRebuild:
    """Indexes everything again, kind by kind."""

    def __init__(self, sql: Sql, indexer: Indexer, clock: Clock) -> None:
        self._sql = sql
        self._indexer = indexer
        self._clock = clock

    async def run(self, only: Collection[str] | None = None) -> None:
        """Index all objects, or those of some kinds, and remove from the index what no longer exists."""
        for kind in self._indexer.sources:
            if only is None or kind in only:
                await self._rebuild_kind(kind)

    async def run_or_resume(self, show: Show = _show_nothing) -> dict[str, int]:
        """Do the same for all kinds, or go on where the last call was interrupted. Returns the documents by kind.

        It skips what has changed in the part that was done before: it is not for what must be repaired completely.
        """
        positions = await self._positions()
        for kind in self._indexer.sources:
            after, is_done = positions.get(kind, ("", False))
            if not is_done:
                await self._rebuild_kind(kind, after, show, self._save)
                await self._save(kind, "", done=True)
        async with self._sql.begin() as tx:
            await tx.execute(delete(SEARCH_REBUILD))
        return {kind: await self._indexer.index.count(kind) for kind in self._indexer.sources}

    async def _rebuild_kind(
        self, kind: str, after: str = "", show: Show = _show_nothing, save: Save | None = None
    ) -> None:
        source = self._indexer.sources[kind]
        total = await source.count(after)
        async for keys in source.all_keys(after):
            await self._indexer.repair(kind, keys)
            if save is not None and (fitting := [key for key in keys if fits_column(key)]):
                await save(kind, fitting[-1])
            show(kind, len(keys), total)
        last, total = "", await self._indexer.index.count(kind)
        while keys := await self._indexer.index.keys_after(kind, last, CHECK_BATCH):
            await self._indexer.repair(kind, keys)
            last = keys[-1]
            show(f"check {kind}", len(keys), total)

    async def _positions(self) -> dict[str, tuple[str, bool]]:
        """Return the last key of each kind, and whether the kind is complete, if a rebuild was just interrupted."""
        rows = await self._sql.fetch_all(select(SEARCH_REBUILD))
        saved_ms = max((row.saved_ms for row in rows), default=0)
        if abs(self._clock.now_ms() - saved_ms) > RESUME_MS:
            return {}
        return {row.kind: (row.after, bool(row.done)) for row in rows}

    async def _save(self, kind: str, after: str, *, done: bool = False) -> None:
        values = {"after": after, "done": int(done), "saved_ms": self._clock.now_ms()}
        statement = self._sql.insert(SEARCH_REBUILD).values(kind=kind, **values)
        async with self._sql.begin() as tx:
            await tx.execute(statement.on_conflict_do_update(index_elements=["kind"], set_=values))
