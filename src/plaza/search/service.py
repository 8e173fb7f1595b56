"""Search: finds candidates in the index, ranks them, and shows those that the viewer may see.

The index only proposes. Every result is read from source data for the viewer before it is shown, so what was deleted,
banned or blocked a moment ago does not appear, whatever the index still has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from plaza.core.auth import Actor
from plaza.core.clock import Clock
from plaza.core.errors import Invalid
from plaza.core.paging import Page, PageResult, Snapshots
from plaza.core.search_source import AuthorSource, SearchHit, SearchSource, TagSource
from plaza.core.sequences import chunks
from plaza.core.text_folding import fold
from plaza.core.tokens import is_username
from plaza.search.corrections import Correction, Corrections
from plaza.search.index import SearchIndex, SearchMatch
from plaza.search.model import KINDS, Kind, SearchQuery, SearchResults, SuggestedTag, Suggestions
from plaza.search.names import TAGS, Name
from plaza.search.query import Query, parse_query
from plaza.search.ranking import RankedResult, rank

# Matches that are ranked: the newest posts, the heaviest of other kinds. Ranking so many takes about 1 ms.
MAX_CANDIDATES: Final = 200
# So many matches of whole words, a page, are enough. Beginnings of words can match a large part of the index: they are
# looked for only if there are fewer.
ENOUGH_EXACT: Final = 20
BEST_OF_EACH: Final = 5
MAX_SUGGESTIONS: Final = 8
# How often more documents are looked for if most are of hidden authors.
MAX_MORE: Final = 3
# Corrected queries that are tried.
MAX_CORRECTED_SEARCHES: Final = 3
# Names read for suggestions. Some belong to one user, and some are hidden from the viewer.
MAX_NAMES_READ: Final = 4 * MAX_SUGGESTIONS
# So many times more are read if they belong to few users, because a display name can have 30 words that begin alike, or
# if most of their users are hidden.
MORE_NAMES: Final = 8


class Search:
    """Searches all kinds for a viewer."""

    def __init__(
        self,
        index: SearchIndex,
        sources: Mapping[str, SearchSource],
        authors: AuthorSource | None,
        tags: TagSource | None,
        snapshots: Snapshots,
        clock: Clock,
    ) -> None:
        self._index = index
        self._sources = sources
        self._authors = authors
        self._tags = tags
        self._snapshots = snapshots
        self._clock = clock
        self._corrections = Corrections(index.names)

    async def search(self, viewer: Actor | None, request: SearchQuery) -> SearchResults:
        """Return a page of one kind, or the best of each."""
        query = parse_query(request.q)
        explain = request.explain and viewer is not None and viewer.is_admin
        if request.type is None:
            if request.cursor or request.offset:
                raise Invalid("Send a type too: the best of each kind have no pages.", field="type")
            results = await self._best_of_each(viewer, query, explain)
        else:
            paged = await self.page(viewer, request.type, request.q, request, explain=explain)
            results = SearchResults(pagination=paged.pagination)
            setattr(results, request.type, paged.items)
        if not _has_hits(results) and not (request.type and await self._finds_something(viewer, request.q)):
            results.did_you_mean = await self._did_you_mean(viewer, request.q)
        return results

    async def _finds_something(self, viewer: Actor | None, text: str) -> bool:
        return _has_hits(await self._best_of_each(viewer, parse_query(text), explain=False))

    async def page(
        self, viewer: Actor | None, kind: Kind, text: str, page: Page, *, explain: bool = False
    ) -> PageResult[SearchHit]:
        """Return a page of one kind, best first. One statement, then as many round trips as the source takes."""
        if kind not in self._sources:
            raise Invalid("is not a kind that can be searched here", field="type")
        query = parse_query(text)
        ranked: dict[str, RankedResult] = {}

        async def first_keys(count: int) -> list[str]:
            results = await self._ranked(viewer, kind, query)
            ranked.update({result.key: result for result in results})
            return [result.key for result in results[:count]]

        async def load(keys: Sequence[str]) -> list[SearchHit | None]:
            hits = await self._load(viewer, kind, keys)
            if not explain:
                return hits
            return [hit and _explained(hit, ranked.get(key)) for key, hit in zip(keys, hits, strict=True)]

        name = f"search {kind} {viewer.name if viewer else ''} {text}"
        return await self._snapshots.page(name, page, first_keys, load)

    async def suggest(self, viewer: Actor | None, text: str) -> Suggestions:
        """Return users and tags whose names begin with a text. Two or three statements and two round trips."""
        typed = text.strip()
        prefix = typed.lstrip("@#")
        if not fold(prefix):  # every name begins with nothing
            return Suggestions([], [])
        if typed.startswith("#"):
            return Suggestions([], await self._suggested_tags(viewer, prefix))
        if typed.startswith("@"):
            return Suggestions(await self._suggested_users(viewer, prefix), [])
        users, tags = await asyncio.gather(self._suggested_users(viewer, prefix), self._suggested_tags(viewer, prefix))
        return Suggestions(users, tags)

    async def _best_of_each(self, viewer: Actor | None, query: Query, explain: bool) -> SearchResults:
        kinds = [kind for kind in KINDS if kind in self._sources]
        found = await asyncio.gather(*(self._best(viewer, kind, query, explain) for kind in kinds))
        results = SearchResults()
        for kind, hits in zip(kinds, found, strict=True):
            setattr(results, kind, hits)
        return results

    async def _best(self, viewer: Actor | None, kind: Kind, query: Query, explain: bool) -> list[SearchHit]:
        ranked = await self._ranked(viewer, kind, query)
        found: list[SearchHit] = []
        for start in range(0, len(ranked), 4 * BEST_OF_EACH):
            batch = ranked[start : start + 4 * BEST_OF_EACH]
            hits = await self._load(viewer, kind, [result.key for result in batch])
            pairs = zip(hits, batch, strict=True)
            found += [_explained(hit, result) if explain else hit for hit, result in pairs if hit is not None]
            if len(found) >= BEST_OF_EACH:
                break
        return found[:BEST_OF_EACH]

    async def _load(self, viewer: Actor | None, kind: Kind, keys: Sequence[str]) -> list[SearchHit | None]:
        """Return what the viewer may see: the source decides about the object, and here about its author."""
        hits = list(await self._sources[kind].load(viewer, keys))
        if self._authors is None:
            return hits
        hidden = await self._authors.hidden_authors(viewer, {hit.author for hit in hits if hit and hit.author})
        return [None if hit is not None and hit.author in hidden else hit for hit in hits]

    async def _ranked(self, viewer: Actor | None, kind: Kind, query: Query) -> list[RankedResult]:
        candidates = await self._candidates(viewer, kind, query)
        keys = [candidate.key for candidate in candidates]
        preferred = await self._sources[kind].preferred(viewer, keys) if viewer is not None and keys else set()
        return rank(kind, candidates, query, self._clock.now_ms(), preferred)

    async def _candidates(self, viewer: Actor | None, kind: Kind, query: Query) -> list[SearchMatch]:
        """Return the documents to rank, and look for more if most are of authors that are hidden from the viewer.

        Otherwise a suspended or blocked user with many documents would take the places of everyone else's, and a page
        with a next one that is empty would tell that they wrote the words.
        """
        found = await find_candidates(self._index, kind, query)
        if kind == "users" and query.name:
            known = {match.key for match in found}
            named = {*await self._users_named(viewer, query.name, MAX_CANDIDATES)} - known
            if len(known) + len(named) < ENOUGH_EXACT and " " not in query.name:
                named |= {*await self._index.names.owners_containing(kind, query.name, ENOUGH_EXACT)}
            found += await self._index.matches(kind, sorted(named - known))
        if self._authors is None:
            return found
        more = MAX_MORE
        while True:
            hidden = await self._authors.hidden_authors(viewer, {match.author for match in found if match.author})
            visible = [match for match in found if match.author not in hidden]
            if not more or not len(visible) < ENOUGH_EXACT <= len(found):
                return visible
            more -= 1
            query = query.without_authors(hidden)
            known = {match.key for match in visible}
            found = visible + [
                match for match in await find_candidates(self._index, kind, query) if match.key not in known
            ]

    async def _users_named(self, viewer: Actor | None, name: str, count: int) -> list[str]:
        """Return the user with a name, those that the viewer follows, then the users with most followers.

        The first two may have few followers, while thousands of names begin alike.
        """
        wanted = fold(name)
        names = await self._index.names.by_prefix("users", name, count)
        if len(names) == count and len({each.key for each in names}) < MAX_SUGGESTIONS:
            names = await self._index.names.by_prefix("users", name, MORE_NAMES * count)
        followed = await self._authors.followed_users(viewer) if self._authors and viewer else []
        keys = [name, wanted, *(user for user in followed if fold(user).startswith(wanted))]
        return list(dict.fromkeys([*filter(is_username, keys), *(each.key for each in _exact_first(names, wanted))]))

    async def _suggested_users(self, viewer: Actor | None, prefix: str) -> list[SearchHit]:
        if "users" not in self._sources:
            return []
        found: list[SearchHit] = []
        for count in (MAX_NAMES_READ, MORE_NAMES * MAX_NAMES_READ):  # more if most of the first are hidden
            keys = (await self._users_named(viewer, prefix, count))[:count]
            found = [hit for hit in await self._sources["users"].load(viewer, keys) if hit is not None]
            if len(found) >= MAX_SUGGESTIONS or len(keys) < count:
                break
        return found[:MAX_SUGGESTIONS]

    async def _suggested_tags(self, viewer: Actor | None, prefix: str) -> list[SuggestedTag]:
        if self._tags is None:
            return []
        names = _exact_first(await self._index.names.by_prefix(TAGS, prefix, MAX_NAMES_READ), prefix)
        found: list[SuggestedTag] = []
        for batch in chunks(names, MAX_SUGGESTIONS):
            visible = await self._tags.visible_tags(viewer, [name.key for name in batch])
            found += [SuggestedTag(name.key, visible[name.key]) for name in batch if name.key in visible]
            if len(found) >= MAX_SUGGESTIONS:
                break
        return found[:MAX_SUGGESTIONS]

    async def _did_you_mean(self, viewer: Actor | None, text: str) -> str | None:
        """Return the query with one name or tag corrected to one that the viewer may see, and that finds something."""
        searches = 0
        for correction in await self._corrections.suggest(text):
            if searches < MAX_CORRECTED_SEARCHES and await self._is_visible(viewer, correction):
                searches += 1
                if await self._finds_something(viewer, correction.text):
                    return correction.text
        return None

    async def _is_visible(self, viewer: Actor | None, correction: Correction) -> bool:
        if correction.kind == TAGS:
            return self._tags is not None and bool(await self._tags.visible_tags(viewer, [correction.key]))
        users = self._sources.get("users")  # none if the domain is off; the index may still have its names
        return users is not None and any(await users.load(viewer, [correction.key]))


async def find_candidates(index: SearchIndex, kind: Kind, query: Query) -> list[SearchMatch]:
    """Return the documents to rank. One statement, or two if few documents have the words as they are.

    The beginning of a word can match a large part of the index, so it is used only if it has three letters and the
    words themselves find few. Names of users are the exception: `an` must find `ana`, and there are fewer of them.
    """
    if kind == "users":
        return await index.find(kind, query, MAX_CANDIDATES)
    newest, prefixes = kind == "posts", query.without_short_prefixes()
    found = await index.find(kind, query.exact(), MAX_CANDIDATES, newest=newest)
    if len(found) < ENOUGH_EXACT and prefixes.has_prefixes:
        known = {match.key for match in found}
        more = await index.find(kind, prefixes, MAX_CANDIDATES, newest=newest)
        found += [match for match in more if match.key not in known]
    return found


def _has_hits(results: SearchResults) -> bool:
    return any(getattr(results, kind) for kind in KINDS)


def _explained(hit: SearchHit, result: RankedResult | None) -> SearchHit:
    """Return a result with its score. A later page reads a snapshot, which has no scores."""
    if result is None:
        return hit
    return msgspec.structs.replace(hit, score=result.score, reasons=result.reasons)


def _exact_first(names: Sequence[Name], prefix: str) -> list[Name]:
    """Put a name that was typed in full before longer ones; otherwise keep the order by weight."""
    typed = fold(prefix)
    return sorted(names, key=lambda name: name.name != typed)
