"""Finds and restores what the index has lost of its documents: rows of the words, of names' trigrams and of tags.

A document is written only if it differs from its source. So if a table was restored in part or is damaged, its rows
would never be written again: the document is right, and is not found.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Row, exc, func, select, text

from plaza.core.async_engine import AsyncConnection
from plaza.core.sql import Sql
from plaza.core.text_folding import fold
from plaza.search.index import (
    HAS_KEY,
    MATCHES,
    WORDS,
    expression_for,
    fits_column,
    lock_writers,
    split_tags,
    write_words,
)
from plaza.search.names import NameIndex
from plaza.search.query import Query
from plaza.search.tables import SEARCH_DOCUMENT

# FTS5 is asked for the first term of a document: it loses whole documents, or is damaged and says so.
_LACKS_WORDS: Final = {
    "sqlite": """
        search_document.terms <> '' AND NOT EXISTS (
            SELECT 1 FROM search_words WHERE search_words.rowid = search_document.id AND search_words MATCH
                '"' || substr(search_document.terms, 1, instr(search_document.terms || ' ', ' ') - 1) || '"')
    """,
    "postgresql": """
        NOT EXISTS (SELECT 1 FROM search_words WHERE search_words.rowid = search_document.id
            AND tsvector_to_array(search_words.terms) @> string_to_array(search_document.terms, ' '))
    """,
}
_STORED = select(SEARCH_DOCUMENT.c.key, SEARCH_DOCUMENT.c.id, SEARCH_DOCUMENT.c.tags, SEARCH_DOCUMENT.c.terms).where(
    *HAS_KEY
)
_REBUILD_FTS5 = text("INSERT INTO search_words (search_words) VALUES ('rebuild')")


class LostRows:
    """Compares the tables of the index with its documents."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._names = NameIndex(sql)
        self._without_words = _STORED.where(text(_LACKS_WORDS[sql.dialect]))
        self._count = select(func.count()).select_from(WORDS).where(MATCHES[sql.dialect])

    async def find(self, kind: str, keys: Sequence[str]) -> list[str]:
        """Return the keys of documents that lack words, trigrams of names, or tags. At most five statements."""
        keys = [*filter(fits_column, keys)]
        lost = {row.key for row in await self._find_without_words(kind, keys)}
        lost |= {name.key for name in await self._names.without_trigrams(kind, keys)}
        tags = await self._tags(kind, keys)
        lost_tags = await self._names.lost_tags({tag for each in tags.values() for tag in each})
        lost |= {key for key, each in tags.items() if not lost_tags.isdisjoint(each)}
        return sorted(lost)

    async def restore(self, kind: str, keys: Sequence[str]) -> None:
        """Write what documents have lost. Nothing is written if that is nothing."""
        if not (lost := await self.find(kind, keys)):
            return
        counts = {}
        async with self._sql.begin() as tx:
            await lock_writers(self._sql, tx)
            await self._restore_words(tx, kind, lost)
            tags = await self._tags(kind, lost)
            for tag in await self._names.lost_tags({tag for each in tags.values() for tag in each}):
                expression = expression_for(self._sql.dialect)(kind, Query(tags=(fold(tag),)))
                counts[tag] = (await tx.execute(self._count, {"expression": expression})).scalar_one()
            await self._names.restore(tx, kind, lost, counts)

    async def _restore_words(self, tx: AsyncConnection, kind: str, keys: Sequence[str]) -> None:
        if self._sql.dialect == "postgresql":
            rows = (await tx.execute(self._without_words, {"kind": kind, "keys": list(keys)})).all()
            await write_words(tx, [(row.id, row.terms) for row in rows])
        elif await self._find_without_words(kind, keys):
            # FTS5 cannot tell which words of a document it has, so it reads all documents again.
            await tx.execute(_REBUILD_FTS5)

    async def _find_without_words(self, kind: str, keys: Sequence[str]) -> Sequence[Row[Any]]:
        try:
            return await self._sql.fetch_all(self._without_words, kind=kind, keys=list(keys))
        except exc.DatabaseError as error:
            if not _is_damaged(error):
                raise
            return await self._sql.fetch_all(_STORED, kind=kind, keys=list(keys))

    async def _tags(self, kind: str, keys: Sequence[str]) -> dict[str, list[str]]:
        rows = await self._sql.fetch_all(_STORED.where(SEARCH_DOCUMENT.c.tags != ""), kind=kind, keys=list(keys))
        return {row.key: split_tags(row.tags) for row in rows}


def _is_damaged(error: exc.DatabaseError) -> bool:
    return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT
