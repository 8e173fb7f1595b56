"""The declaration of the `search` domain. It finds what the other domains offer as search sources."""

from __future__ import annotations

from plaza.core.domain import Core, Domain, Parts, Provided
from plaza.core.events import Events
from plaza.core.functions import Library
from plaza.core.keyspace import Catalogue
from plaza.core.paging import Snapshots
from plaza.core.search_source import TagSource
from plaza.search.index import SearchIndex
from plaza.search.indexer import Indexer
from plaza.search.invariants import SearchInspector
from plaza.search.jobs import consumers
from plaza.search.rebuild import IndexRebuild
from plaza.search.routes import route
from plaza.search.service import Search

# It has no keys and no Lua: the index is in SQL.
LIBRARY = Library("search", Catalogue("search", {}, {}), "")


def build(core: Core) -> Parts:
    """Build nothing yet: the search needs the sources of all domains."""
    return Parts([], build_last=lambda provided: _build_last(core, provided))


def _build_last(core: Core, provided: Provided) -> Parts:
    index = SearchIndex(core.sql)
    sources = {source.kind: source for source in provided.search_sources}
    indexer = Indexer(index, sources)
    tags = next((source for source in sources.values() if isinstance(source, TagSource)), None)
    search = Search(index, sources, tags, Snapshots(core.valkey, core.clock), core.clock)
    rebuild = IndexRebuild(core.sql, indexer)
    return Parts(
        [search, rebuild],
        consumers=consumers(indexer, rebuild),
        inspectors=[SearchInspector(indexer, Events(core.functions))],
    )


DOMAIN = Domain(LIBRARY, [route], build)
