"""The consumers of the search: they index what an event has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plaza.core.events import Consumer
from plaza.search.indexer import Indexer
from plaza.search.rebuild import IndexRebuild

# The domains whose events change what is found.
STREAMS: Final = ("social", "articles", "challenges", "shop")
GROUP: Final = "search"
# A post that thousands like at once is indexed once for so many likes, and the weights of a batch are one transaction.
BATCH_SIZE: Final = 192


def consumers(indexer: Indexer, rebuild: IndexRebuild, streams: Sequence[str]) -> list[Consumer]:
    """Return a consumer for each domain."""
    handler = indexer.handle_batch
    return [Consumer(each, GROUP, handle_batch=handler, rebuild=rebuild.run, batch_size=BATCH_SIZE) for each in streams]
