"""How many documents have a word, as PostgreSQL estimates it for its own plans: `ANALYZE` counts words of a sample."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, prod
from time import monotonic
from typing import Final

from sqlalchemy import text

from plaza.core.sql import Sql

# Autovacuum counts again when a tenth of the documents has changed.
RELOAD_SECONDS: Final = 600

_COUNTED = text(
    "SELECT CAST(CAST(most_common_elems AS text) AS text[]), most_common_elem_freqs, "
    "(SELECT reltuples FROM pg_class WHERE oid = CAST('search_words' AS regclass)) FROM pg_stats "
    "WHERE tablename = 'search_words' AND attname = 'terms' AND schemaname = ANY(current_schemas(false)) "
    "AND most_common_elems IS NOT NULL"
)


class WordFrequencies:
    """The frequent words, by default a thousand. Every other word is in fewer documents than the last of them."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._documents: dict[str, float] = {}
        self._fewest = inf
        self._total = 1.0
        self._loaded_at = -inf

    async def refresh(self) -> None:
        """Load the words if they are old. One statement every ten minutes."""
        if monotonic() - self._loaded_at < RELOAD_SECONDS:
            return
        self._loaded_at = monotonic()
        for row in await self._sql.fetch_all(_COUNTED):
            words, shares, total = tuple(row)
            # After the shares of the words come the smallest and the largest.
            self._documents = {word: share * total for word, share in zip(words, shares, strict=False)}
            self._total = total
            self._fewest = min(self._documents.values(), default=inf)

    def documents(self, term: str, *, is_prefix: bool = False) -> float:
        """Return in how many documents a term is, or its beginning, about. Infinitely many if nothing is known."""
        if not is_prefix:
            return self._documents.get(term, self._fewest)
        return sum((count for word, count in self._documents.items() if word.startswith(term)), self._fewest)

    def in_common(self, documents: Iterable[float]) -> float:
        """Return how many documents meet several conditions, about, if these have nothing to do with each other."""
        return self._total * prod(count / self._total for count in documents)
