"""Rebuilds the index from source data, beside a running server. An interrupted rebuild goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import delete, select

from plaza.core.sql import Sql
from plaza.search.index import fits_column
from plaza.search.indexer import Indexer
from plaza.search.tables import SEARCH_REBUILD

# Keys of the index that are checked at once for objects that no longer exist.
CHECK_BATCH: Final = 500

# Gets the name of a step, the number of keys that were processed, and how many keys the step has.
Show = Callable[[str, int, int], None]


class IndexRebuild:
    """Indexes everything again, kind by kind."""

    def __init__(self, sql: Sql, indexer: Indexer) -> None:
        self._sql = sql
        self._indexer = indexer

    async def run(self, show: Show = lambda step, done, total: None) -> dict[str, int]:
        """Index all objects, and remove from the index what no longer exists. Returns the documents by kind."""
        for kind in self._indexer.sources:
            after, is_done = await self._position(kind)
            if not is_done:
                await self._rebuild_kind(kind, after, show)
        async with self._sql.begin() as tx:
            await tx.execute(delete(SEARCH_REBUILD))
        return {kind: await self._indexer.index.count(kind) for kind in self._indexer.sources}

    async def _rebuild_kind(self, kind: str, after: str, show: Show) -> None:
        source = self._indexer.sources[kind]
        total = await source.count(after)
        async for keys in source.all_keys(after):
            await self._indexer.repair(kind, keys)
            if fitting := [key for key in keys if fits_column(key)]:
                await self._save(kind, fitting[-1])
            show(kind, len(keys), total)
        last, total = "", await self._indexer.index.count(kind)
        while keys := await self._indexer.index.keys_after(kind, last, CHECK_BATCH):
            await self._indexer.repair(kind, keys)
            last = keys[-1]
            show(f"check {kind}", len(keys), total)
        await self._save(kind, last, done=True)

    async def _position(self, kind: str) -> tuple[str, bool]:
        row = await self._sql.fetch_all(select(SEARCH_REBUILD).where(SEARCH_REBUILD.c.kind == kind))
        return (row[0].after, bool(row[0].done)) if row else ("", False)

    async def _save(self, kind: str, after: str, *, done: bool = False) -> None:
        values = {"after": after, "done": int(done)}
        statement = self._sql.insert(SEARCH_REBUILD).values(kind=kind, **values)
        async with self._sql.begin() as tx:
            await tx.execute(statement.on_conflict_do_update(index_elements=["kind"], set_=values))
