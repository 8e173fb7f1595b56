"""Keeps the index up to date: consumes the events of the other domains, and rebuilds it from source data."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from plaza.core.events import Event
from plaza.core.search_source import SearchDocument, SearchSource, WeightSource, finite_weight
from plaza.core.sequences import chunks
from plaza.core.valkey import damaged_keys_as_absent
from plaza.search.index import SearchIndex
from plaza.search.lost_rows import LostRows

# Documents in one transaction: long enough to be cheap, short enough for other writers.
BATCH: Final = 200

# Events and weights after which other work of the event loop goes first: they take half a millisecond.
STEP: Final = 48

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
        # To ask whether an object follows a protocol takes longer than all else that an event needs.
        self._weight_sources = {kind: source for kind, source in sources.items() if isinstance(source, WeightSource)}
        self._weight_events = {kind: source.weight_events for kind, source in self._weight_sources.items()}

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
            documents = await self.documents(kind, batch)
            for attempt in range(MAX_READS):
                pending = await self.index.write(kind, documents)
                changed += len(pending) if attempt == 0 else 0
                read_again = await self.documents(kind, pending) if pending else {}
                documents = {key: document for key, document in read_again.items() if document != documents[key]}
                if not documents:
                    break
        return changed

    async def reweigh(self, kind: str, source: WeightSource, keys: Iterable[str]) -> None:
        """Index the weights of objects as they are now. What changed is read again, as `refresh` does."""
        for batch in chunks(dict.fromkeys(keys), BATCH):
            weights, missing = await self._weights(source, batch), list[str]()
            for _ in range(MAX_READS):
                pending, unknown = await self.index.reweigh(kind, weights)
                missing += unknown
                read_again = await self._weights(source, pending) if pending else {}
                weights = {key: weight for key, weight in read_again.items() if weight != weights[key]}
                if not weights:
                    break
            await self.refresh(kind, missing)

    async def _weights(self, source: WeightSource, keys: Sequence[str]) -> dict[str, float]:
        found = dict[str, float]()
        with damaged_keys_as_absent():
            for step in chunks(keys, STEP):
                found |= await source.weights(step)
        return {key: finite_weight(weight) for key, weight in found.items()}

    async def documents(self, kind: str, keys: Sequence[str]) -> dict[str, SearchDocument | None]:
        """Return what to index of objects; None for one that no user may find, also because its key is damaged."""
        with damaged_keys_as_absent():
            found = await self.sources[kind].documents(keys)
        return {key: found.get(key) for key in keys}

    async def handle_batch(self, events: Sequence[Event]) -> None:
        """Index what events may have changed: each object once, however many events are about it."""
        changed: dict[str, dict[str, None]] = {kind: {} for kind in self.sources}
        reweighed: dict[str, dict[str, None]] = {kind: {} for kind in self.sources}
        authors: dict[str, None] = {}
        for number, event in enumerate(events, 1):
            if number % STEP == 0:
                await asyncio.sleep(0)
            type, data = event.type, event.data
            for kind, source in self.sources.items():
                of_event = reweighed if type in self._weight_events.get(kind, ()) else changed
                of_event[kind].update(dict.fromkeys(source.changed_keys(type, event.subject, data)))
            if type in AUTHOR_EVENTS:
                authors.update({value: None for value in data.values() if isinstance(value, str)})
        for kind, keys in changed.items():
            await self.refresh(kind, keys)
        for kind, weight_source in self._weight_sources.items():
            await self.reweigh(kind, weight_source, [key for key in reweighed[kind] if key not in changed[kind]])
        for author in authors:
            await self.refresh_author(author)

    async def refresh_author(self, author: str) -> None:
        """Index again what the index has of an author."""
        for kind in self.sources:
            await self.refresh(kind, await self.index.keys_by_author(kind, author))
