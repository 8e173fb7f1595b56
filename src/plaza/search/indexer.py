"""Keeps the index up to date: consumes the events of the other domains, and rebuilds it from source data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from plaza.core.events import Event
from plaza.core.search_source import SearchDocument, SearchSource
from plaza.core.sequences import chunks
from plaza.core.valkey import damaged_keys_as_absent
from plaza.search.index import SearchIndex
from plaza.search.lost_rows import LostRows

# Documents in one transaction: long enough to be cheap, short enough for other writers.
BATCH: Final = 200

# Reads of an object that keeps changing. Its next event follows anyway.
MAX_READS: Final = 5

# Events after which everything of a user is indexed again.
AUTHOR_EVENTS: Final = frozenset({"user.renamed", "user.deleted"})


class Indexer:
    """Writes documents of all sources to the index."""

    def __init__(self, index: SearchIndex, sources: Mapping[str, SearchSource], lost_rows: LostRows) -> None:
        self.index = index
        self.sources = sources
        self._lost_rows = lost_rows

    async def repair(self, kind: str, keys: Sequence[str]) -> None:
        """Index objects as they are now, also if tables of the index have lost rows."""
        await self._lost_rows.restore(kind, keys)  # first: a damaged FTS5 table cannot be written
        await self.refresh(kind, keys)

    async def misleading(self, kind: str, documents: Mapping[str, SearchDocument | None]) -> list[str]:
        """Return the keys that the index does not find as their documents say."""
        lost = await self._lost_rows.find(kind, list(documents))
        return list(dict.fromkeys([*await self.index.misleading(kind, documents), *lost]))

    async def refresh(self, kind: str, keys: Iterable[str]) -> int:
        """Index objects as they are now, and remove those that no user may find. Returns how many changed.

        What changed is read again after it was written. So if two refresh the same object, the later one notices that
        it has written an old state, and the index ends with the current one.
        """
        changed = 0
        for batch in chunks(dict.fromkeys(keys), BATCH):
            pending: Sequence[str] = batch
            for attempt in range(MAX_READS):
                pending = await self.index.write(kind, await self.documents(kind, pending))
                changed += len(pending) if attempt == 0 else 0
                if not pending:
                    break
        return changed

    async def documents(self, kind: str, keys: Sequence[str]) -> dict[str, SearchDocument | None]:
        """Return what to index of objects; None for one that no user may find, also because its key is damaged."""
        with damaged_keys_as_absent():
            found = await self.sources[kind].documents(keys)
        return {key: found.get(key) for key in keys}

    async def handle_batch(self, events: Sequence[Event]) -> None:
        """Index what events may have changed: each object once, however many events are about it."""
        changed: dict[str, dict[str, None]] = {kind: {} for kind in self.sources}
        authors: dict[str, None] = {}
        for event in events:
            data = event.data
            for kind, source in self.sources.items():
                changed[kind].update(dict.fromkeys(source.changed_keys(event.type, event.subject, data)))
            if event.type in AUTHOR_EVENTS:
                authors.update({value: None for value in data.values() if isinstance(value, str)})
        for kind, keys in changed.items():
            await self.refresh(kind, keys)
        for author in authors:
            await self.refresh_author(author)

    async def refresh_author(self, author: str) -> None:
        """Index again what the index has of an author."""
        for kind in self.sources:
            await self.refresh(kind, await self.index.keys_by_author(kind, author))
