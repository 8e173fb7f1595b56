"""What the audit checks: a sample of the index has what the sources have."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from plaza.core.events import Events
from plaza.core.invariants import Violation
from plaza.core.search_source import SearchDocument
from plaza.core.valkey import ReplyError
from plaza.search.indexer import Indexer
from plaza.search.jobs import GROUP, STREAMS
from plaza.search.tables import SEARCH_DOCUMENT

# Documents of each kind that are checked; all of them if there are fewer.
SAMPLE: Final = 2_000
BATCH: Final = 500
READS: Final = 3
PAUSE_SECONDS: Final = 0.1
MAX_WAIT_SECONDS: Final = 5.0


class SearchInspector:
    """Compares the index with its sources.

    While events wait for the index, it is behind, and nothing is wrong. So what differs is compared again when all
    events have been handled.
    """

    checks_valkey = True

    def __init__(self, indexer: Indexer, events: Events) -> None:
        self._indexer = indexer
        self._events = events

    async def inspect(self) -> AsyncIterator[Violation]:
        """Yield documents that are missing, outdated, or of something that no longer exists."""
        if not await self._has_caught_up():
            return
        for kind in self._indexer.sources:
            share = SAMPLE / max(await self._indexer.index.count(kind), SAMPLE)
            async for keys in self._keys(kind):
                for key in await self._outdated(kind, _sample(keys, share)):
                    yield _violation(kind, key, "differs from its source")
            last = ""
            while indexed := await self._indexer.index.keys_after(kind, last, BATCH):
                last = indexed[-1]
                for key in await self._outdated(kind, _sample(indexed, share)):
                    yield _violation(kind, key, "is of something that no longer exists or has changed")

    async def _keys(self, kind: str) -> AsyncIterator[Sequence[str]]:
        try:
            async for keys in self._indexer.sources[kind].all_keys(""):
                yield keys
        except ReplyError as error:
            if error.code != "WRONGTYPE":  # a finding of its own
                raise

    async def repair(self, fault: Violation) -> None:
        """Index the object as it is now."""
        await self._indexer.repair(fault.key, [fault.member])

    async def _outdated(self, kind: str, keys: Sequence[str]) -> list[str]:
        """Return the keys whose documents differ from an unchanged source while no event waits."""
        suspects: dict[str, SearchDocument | None] = {}
        for attempt in range(READS):
            if not keys:
                return []
            if attempt and not await self._wait_until_caught_up():
                return []
            documents = await self._indexer.documents(kind, keys)
            differing = await self._indexer.misleading(kind, documents)
            keys = [key for key in differing if not attempt or documents[key] == suspects[key]]
            suspects = {key: documents[key] for key in keys}
        return list(keys)

    async def _wait_until_caught_up(self) -> bool:
        """Wait until the index has handled all events; False if that takes too long."""
        for _ in range(round(MAX_WAIT_SECONDS / PAUSE_SECONDS)):
            await asyncio.sleep(PAUSE_SECONDS)
            if await self._has_caught_up():
                return True
        return False

    async def _has_caught_up(self) -> bool:
        return all([await self._events.has_caught_up(stream, GROUP) for stream in STREAMS])


def _sample(keys: Iterable[str], share: float) -> list[str]:
    return [key for key in keys if random.random() < share]


def _violation(kind: str, key: str, says: str) -> Violation:
    return Violation(str(SEARCH_DOCUMENT.name), "index", kind, key, says, f"index {key} again")
