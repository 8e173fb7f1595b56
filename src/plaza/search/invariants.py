"""What the audit checks: a sample of the index has what the sources have."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from plaza.core.event_progress import EventProgress, NoProgress
from plaza.core.invariants import Violation, not_compared
from plaza.core.search_source import SearchDocument
from plaza.core.sequences import chunks
from plaza.core.valkey import ReplyError, damaged_keys_as_absent
from plaza.search.indexer import Indexer
from plaza.search.jobs import GROUP
from plaza.search.rebuild import IndexRebuild
from plaza.search.tables import SEARCH_DOCUMENT

_TABLE: Final = str(SEARCH_DOCUMENT.name)
# The rule of a violation that is about all documents of a kind.
_SAMPLE_RULE: Final = "sample"

# Documents of each kind that are checked; all of them if there are fewer.
SAMPLE: Final = 2_000
BATCH: Final = 500
READS: Final = 3


class SearchInspector:
    """Compares the index with its sources.

    While events wait for the index, it is behind, and nothing is wrong. So what differs is compared again when those
    events have been handled. If documents of a sample differ, others do too: then a repair rebuilds the whole kind.
    """

    family = _TABLE
    checks_valkey = True

    def __init__(self, indexer: Indexer, rebuild: IndexRebuild, progress: EventProgress) -> None:
        self._indexer = indexer
        self._rebuild = rebuild
        self._progress = progress

    async def inspect(self) -> AsyncIterator[Violation]:
        """Yield documents that are missing, outdated, or of something that no longer exists."""
        if not await self._progress.has_started():
            return  # no worker has filled the index yet
        try:
            if not await self._progress.has_caught_up():
                await self._progress.wait()
            async for violation in self._compare():
                yield violation
        except NoProgress:
            yield not_compared(_TABLE, GROUP)

    async def _compare(self) -> AsyncIterator[Violation]:
        for kind in self._indexer.sources:
            indexed, existing = await self._indexer.index.count(kind), await self._count(kind)
            share = SAMPLE / max(indexed, existing, SAMPLE)
            differing = 0
            async for key, says in self._differing(kind, share):
                differing += 1
                yield Violation(_TABLE, "index", kind, key, f"{key} {says}", f"index {key} again")
            if differing and share < 1:
                says = f"{differing:,} differ in a sample of about {SAMPLE:,}, so others may too"
                yield Violation(_TABLE, _SAMPLE_RULE, kind, "", says, f"rebuild {kind}")

    async def _differing(self, kind: str, share: float) -> AsyncIterator[tuple[str, str]]:
        """Yield each key of a sample whose document differs, once, and how."""
        existing = [key async for keys in self._keys(kind) for key in _sample(keys, share)]
        found = await self._outdated(kind, existing)
        for key in sorted(found):
            yield key, "is missing or differs from its source"
        indexed, last = list[str](), ""
        while keys := await self._indexer.index.keys_after(kind, last, BATCH):
            last = keys[-1]
            indexed += _sample(keys, share)
        for key in sorted(await self._outdated(kind, [key for key in indexed if key not in found])):
            yield key, "is of something that no longer exists or has changed"

    async def _keys(self, kind: str) -> AsyncIterator[Sequence[str]]:
        try:
            async for keys in self._indexer.sources[kind].all_keys(""):
                yield keys
        except ReplyError as error:
            if error.code != "WRONGTYPE":  # a finding of its own
                raise

    async def _count(self, kind: str) -> int:
        with damaged_keys_as_absent():
            return await self._indexer.sources[kind].count("")

    async def repair(self, fault: Violation) -> None:
        """Index the object, or all of its kind, as they are now."""
        if fault.rule == _SAMPLE_RULE:
            await self._rebuild.run(only=[fault.key])
        else:
            await self._indexer.repair(fault.key, [fault.member])

    async def _outdated(self, kind: str, keys: Iterable[str]) -> set[str]:
        """Return the keys whose documents differ from an unchanged source after its events. All wait together."""
        keys, suspects = set(keys), dict[str, SearchDocument | None]()
        for attempt in range(READS):
            if not keys:
                break
            if attempt:
                await self._progress.wait()
            differing: dict[str, SearchDocument | None] = {}
            for batch in chunks(sorted(keys), BATCH):
                documents = await self._indexer.documents(kind, batch)
                differing |= {key: documents[key] for key in await self._indexer.misleading(kind, documents)}
            keys = {key for key, document in differing.items() if not attempt or document == suspects[key]}
            suspects = differing
        return keys


def _sample(keys: Iterable[str], share: float) -> list[str]:
    return [key for key in keys if random.random() < share]
