"""The consumers of the search: they index what an event has changed."""

from __future__ import annotations

from typing import Final

from plaza.core.events import Consumer
from plaza.search.indexer import Indexer
from plaza.search.rebuild import IndexRebuild

# The domains whose events change what is found.
STREAMS: Final = ("social", "articles", "challenges", "shop")
GROUP: Final = "search"


def consumers(indexer: Indexer, rebuild: IndexRebuild) -> list[Consumer]:
    """Return a consumer for each domain."""
    return [Consumer(stream, GROUP, handle_batch=indexer.handle_batch, rebuild=rebuild.run) for stream in STREAMS]
