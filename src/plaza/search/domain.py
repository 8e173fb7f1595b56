"""The declaration of the `search` domain. It finds what the other domains offer as search sources."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts
from plaza.core.event_progress import EventProgress
from plaza.core.functions import Library
from plaza.core.paging import Snapshots
from plaza.core.search_source import AuthorSource, TagSource
from plaza.search.index import SearchIndex
from plaza.search.indexer import Indexer
from plaza.search.invariants import SearchInspector
from plaza.search.jobs import GROUP, STREAMS, consumers
from plaza.search.keys import CATALOGUE
from plaza.search.lost_rows import LostRows
from plaza.search.personal_data import SearchPersonalData
from plaza.search.rebuild import IndexRebuild
from plaza.search.routes import route
from plaza.search.service import Search

# It has no keys and no Lua: the index is in SQL.
LIBRARY = Library("search", CATALOGUE, "")


def build(core: Core) -> Parts:
    """Build the search on the sources of the domains that are built before it."""
    index = SearchIndex(core.sql)
    sources = {source.kind: source for source in core.provided.search_sources}
    indexer = Indexer(index, sources, LostRows(core.sql))
    tags = next((source for source in sources.values() if isinstance(source, TagSource)), None)
    authors = next((source for source in sources.values() if isinstance(source, AuthorSource)), None)
    rebuild = IndexRebuild(core.sql, indexer, core.clock)
    streams = [name for name in STREAMS if name in core.event_types]  # of the domains that run
    return Parts(
        [Search(index, sources, authors, tags, Snapshots(core.valkey, core.clock), core.clock), rebuild],
        consumers=consumers(indexer, rebuild, streams),
        personal_data=SearchPersonalData(indexer),
        inspectors=[SearchInspector(indexer, rebuild, EventProgress(core.valkey, streams, GROUP))],
    )


DOMAIN = Domain(LIBRARY, [route], build, uses_all=True)
