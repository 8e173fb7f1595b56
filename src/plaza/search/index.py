"""The index: writes documents and finds them. The same on SQLite and PostgreSQL, but for the expression that matches.

A document is written only if it changed, and its words only if they did: a like changes the weight alone. Writers take
turns (SQLite has one writer; PostgreSQL gets a lock), so that the counts of tags stay exact.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Row,
    Select,
    bindparam,
    column,
    delete,
    func,
    insert,
    literal_column,
    select,
    table,
    text,
    true,
    union_all,
    update,
)

from plaza.core.async_engine import AsyncConnection
from plaza.core.search_source import SearchDocument
from plaza.core.sequences import chunks
from plaza.core.sql import Sql
from plaza.search import match_expression
from plaza.search.frequencies import WordFrequencies
from plaza.search.match_expression import (
    fts5_expression,
    most_frequent_beginning,
    rarest_first,
    tsquery_expression,
    tsvector_literal,
)
from plaza.search.names import NameIndex
from plaza.search.query import Query
from plaza.search.tables import MAX_KEY_CHARACTERS, SEARCH_DOCUMENT
from plaza.search.terms import indexed_tags, terms_of

# The number of PostgreSQL's advisory lock for writers: "search" in ASCII.
_WRITER_LOCK: Final = 0x736561726368

# The words of a batch of long texts take 50 ms. After this time, other work of the event loop goes first. The step
# after the last words takes longer: it compares the rows with the stored ones.
TURN_SECONDS: Final = 0.0003

# Keys whose weights are read in one statement, for the same reason.
READ_STEP: Final = 48

# Characters of a candidate's terms that are read for its relevance: about 100 words.
MAX_TERMS_READ: Final = 600
# PostgreSQL reads all matches, without windows, if a condition is met in about so many documents, and all conditions
# together in about so many.
MAX_RARE, MAX_FEW = 5_000, 1_000
# To read the index for the beginning of a word in so many documents takes longer than to read so many documents.
FREQUENT_BEGINNING, MAX_RARE_READ = 100_000, 1_000

WORDS = table("search_words", column("rowid"), column("terms"))
MATCHES: Final = {
    "sqlite": text("search_words MATCH :expression"),
    "postgresql": text("search_words.terms @@ CAST(:expression AS tsquery)"),
}
_COUNT_PARAMETER = bindparam("count", type_=BigInteger)


_MATCH_COLUMNS = (
    SEARCH_DOCUMENT.c.key,
    SEARCH_DOCUMENT.c.author,
    SEARCH_DOCUMENT.c.created_ms,
    SEARCH_DOCUMENT.c.weight,
    func.substr(SEARCH_DOCUMENT.c.terms, 1, MAX_TERMS_READ),
)


def _select_matches(ids: FromClause) -> Select[Any]:
    """Return a statement for the documents with the ids in `rowid`."""
    return select(*_MATCH_COLUMNS).join_from(ids, SEARCH_DOCUMENT, SEARCH_DOCUMENT.c.id == ids.c.rowid)


# PostgreSQL must not use the order or the range of ids to find words: it would read all documents from the newest on.
_UNINDEXED_ID = WORDS.c.rowid + literal_column("0")


def _newest_matches(dialect: str) -> Select[Any]:
    # The newest ids are chosen before documents are read. FTS5 yields ids in this order and stops when it has enough.
    id = WORDS.c.rowid if dialect == "sqlite" else _UNINDEXED_ID
    newest = select(WORDS.c.rowid).where(MATCHES[dialect]).order_by(id.desc()).limit(_COUNT_PARAMETER)
    return _select_matches(newest.subquery())


def _newest_by_windows(sizes: int) -> Select[Any]:
    """Return the statement for PostgreSQL's newest matches, which reads older documents only if it needs them.

    Windows and the parts of the `UNION ALL` are searched one after another, and none after the limit is reached. A
    window is a condition of its own, and the first: the index then skips to its words. For `a & b & window` it reads
    the whole list of `b`, and with the window as the last condition those of two words that no document has together.
    """
    last = select(func.coalesce(func.max(WORDS.c.rowid), 0).label("id")).cte("last")
    matches = select(WORDS.c.rowid).order_by(_UNINDEXED_ID.desc()).limit(_COUNT_PARAMETER)
    is_match = MATCHES["postgresql"]
    is_older: ColumnElement[bool] = true()
    parts = []
    for mark, bits, count in match_expression.WINDOWS[:sizes]:
        newest, oldest = (
            select(literal_column(f"greatest((id >> {bits}) - {back}, 0)", BigInteger))
            .select_from(last)
            .scalar_subquery()
            for back in (0, count - 1)
        )
        windows = func.generate_series(newest, oldest, -1).table_valued("number", name=f"of{bits}").render_derived()
        window = func.concat(literal_column(f"'{mark}'"), windows.c.number).op("::")(literal_column("tsquery"))
        found = matches.where(WORDS.c.terms.op("@@")(window), is_match, is_older).lateral()
        parts.append(select(found.c.rowid).select_from(windows).join(found, true()))
        is_older = oldest.op("<<")(literal_column(str(bits))) > _UNINDEXED_ID
    parts.append(select(matches.where(is_match, is_older).subquery().c.rowid))
    return _select_matches(union_all(*parts).limit(_COUNT_PARAMETER).subquery())


def _newest_among_rare() -> Select[Any]:
    """Return the statement for PostgreSQL's newest matches that reads the documents of one rare condition only.

    For the beginning of a word, the index reads everything that begins so, however rare the other words are. If the
    condition is not rare, contrary to what was counted, all conditions are looked for in the index.
    """
    statement = """
        WITH rare AS MATERIALIZED (
            SELECT rowid, terms @@ CAST(:expression AS tsquery) AS is_match
            FROM search_words WHERE terms @@ CAST(:rare AS tsquery) LIMIT {most} + 1
        )
        (SELECT rowid FROM rare WHERE is_match AND (SELECT count(*) FROM rare) <= {most}
            ORDER BY rowid DESC LIMIT :count)
        UNION ALL
        (SELECT rowid FROM search_words
            WHERE terms @@ CAST(:expression AS tsquery) AND (SELECT count(*) FROM rare) > {most}
            ORDER BY rowid + 0 DESC LIMIT :count)
    """
    # The planner must know the limit, so it is no parameter.
    matches = text(statement.replace("{most}", str(MAX_RARE_READ)))
    return _select_matches(matches.bindparams(_COUNT_PARAMETER).columns(column("rowid", BigInteger)).subquery())


def _heaviest_matches(dialect: str) -> Select[Any]:
    matches = _select_matches(WORDS).where(MATCHES[dialect])
    return matches.order_by(SEARCH_DOCUMENT.c.weight.desc()).limit(_COUNT_PARAMETER)


HAS_KEY = (SEARCH_DOCUMENT.c.kind == bindparam("kind"), SEARCH_DOCUMENT.c.key.in_(bindparam("keys", expanding=True)))
_BY_KEYS = select(SEARCH_DOCUMENT).where(*HAS_KEY)
_MATCHES_BY_KEYS = select(*_MATCH_COLUMNS).where(*HAS_KEY)
_WEIGHTS_BY_KEYS = select(SEARCH_DOCUMENT.c.id, SEARCH_DOCUMENT.c.key, SEARCH_DOCUMENT.c.weight).where(*HAS_KEY)
_OF_ID = SEARCH_DOCUMENT.c.id == bindparam("of_id")
_OF_ID_UPDATE = update(SEARCH_DOCUMENT).where(_OF_ID)
# The id was read before the transaction, and SQLite gives the id of the last document to the next one.
_SET_WEIGHT = _OF_ID_UPDATE.where(
    SEARCH_DOCUMENT.c.kind == bindparam("of_kind"), SEARCH_DOCUMENT.c.key == bindparam("of_key")
).values(weight=bindparam("new_weight"))
_COLUMNS_BUT_TERMS: Final = ("author", "created_ms", "weight", "tags")
_BY_AUTHOR = select(SEARCH_DOCUMENT.c.key).where(
    SEARCH_DOCUMENT.c.kind == bindparam("kind"), SEARCH_DOCUMENT.c.author == bindparam("author")
)
_COUNT = select(func.count()).select_from(SEARCH_DOCUMENT).where(SEARCH_DOCUMENT.c.kind == bindparam("kind"))
_KEYS_AFTER = (
    select(SEARCH_DOCUMENT.c.key)
    .where(SEARCH_DOCUMENT.c.kind == bindparam("kind"), SEARCH_DOCUMENT.c.key > bindparam("after"))
    .order_by(SEARCH_DOCUMENT.c.key)
    .limit(bindparam("count"))
)


class SearchMatch(Struct, frozen=True):
    """A document that matches a query."""

    key: str
    author: str
    created_ms: int
    weight: float
    terms: str


class SearchIndex:
    """The documents of all kinds."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self.names = NameIndex(sql)
        self._newest = _newest_matches(sql.dialect)
        if sql.dialect == "postgresql":
            self._frequencies = WordFrequencies(sql)
            self._newest_frequent = _newest_by_windows(len(match_expression.WINDOWS))
            # The smaller windows help if a word has become frequent since words were counted.
            self._newest_rare = _newest_by_windows(2)
            self._newest_among_rare = _newest_among_rare()
        self._heaviest = _heaviest_matches(sql.dialect)
        self._expression = expression_for(sql.dialect)

    async def find(self, kind: str, query: Query, count: int, *, newest: bool = False) -> list[SearchMatch]:
        """Return documents that match: the heaviest, or the newest. One statement."""
        if query.is_empty:
            return []
        values = {"expression": self._expression(kind, query), "count": count}
        statement = self._newest if newest else self._heaviest
        if newest and self._sql.dialect == "postgresql":
            await self._frequencies.refresh()
            statement, rare = self._postgres_newest(kind, query)
            values |= rare
        rows = await self._sql.fetch_all(statement, **values)
        return [SearchMatch(*tuple(row)) for row in rows]

    def _postgres_newest(self, kind: str, query: Query) -> tuple[Select[Any], dict[str, str]]:
        """Return the statement that is the fastest for words as frequent as these, and a parameter that it needs."""
        conditions = rarest_first(kind, query, self._frequencies)
        documents, rarest = conditions[0]
        if not query.has_prefixes:
            in_common = self._frequencies.in_common(count for count, _ in conditions)
            is_few = documents <= MAX_RARE and in_common <= MAX_FEW
            return self._newest_rare if is_few else self._newest_frequent, {}
        # An entry of the index for the beginning of a word is read as a whole, whatever the windows are.
        if documents <= MAX_RARE and most_frequent_beginning(kind, query, self._frequencies) >= FREQUENT_BEGINNING:
            return self._newest_among_rare, {"rare": rarest}
        return self._newest, {}

    async def matches(self, kind: str, keys: Sequence[str]) -> list[SearchMatch]:
        """Return documents by their keys, as `find` does. One statement if there are any keys."""
        rows = await self._sql.fetch_all(_MATCHES_BY_KEYS, kind=kind, keys=list(keys)) if keys else []
        return [SearchMatch(*tuple(row)) for row in rows]

    async def keys_by_author(self, kind: str, author: str) -> list[str]:
        """Return the keys of an author's documents."""
        return [row.key for row in await self._sql.fetch_all(_BY_AUTHOR, kind=kind, author=author)]

    async def count(self, kind: str) -> int:
        """Return the number of documents of a kind."""
        (row,) = await self._sql.fetch_all(_COUNT, kind=kind)
        return int(row[0])

    async def keys_after(self, kind: str, after: str, count: int) -> list[str]:
        """Return keys in their own order, for a scan of the whole index."""
        return [row.key for row in await self._sql.fetch_all(_KEYS_AFTER, kind=kind, after=after, count=count)]

    async def stored(self, kind: str, keys: Sequence[str]) -> dict[str, Row[Any]]:
        """Return the rows of documents, by key."""
        return {row.key: row for row in await self._sql.fetch_all(_BY_KEYS, kind=kind, keys=list(keys))}

    async def misleading(self, kind: str, documents: Mapping[str, SearchDocument | None]) -> list[str]:
        """Return the keys that are missing, indexed although they are None, or indexed with anything but other weights.

        A weight may be behind: a bookmark, for example, is private and has no event.
        """
        wanted = await index_rows(kind, documents)
        stored = await self.stored(kind, list(wanted))
        renamed = await self._renamed(kind, wanted, documents)
        return [
            key for key, row in wanted.items() if key in renamed or not _is_stored(row, stored.get(key), but="weight")
        ]

    async def _renamed(
        self, kind: str, wanted: Collection[str], documents: Mapping[str, SearchDocument | None]
    ) -> set[str]:
        """Return the keys in `wanted` that are suggested by other names than they have."""
        return set(await self.names.misleading(kind, {key: documents[key] for key in wanted}))

    async def write(self, kind: str, documents: Mapping[str, SearchDocument | None]) -> list[str]:
        """Index documents; None removes one. Returns the keys of those that changed. One transaction if any did."""
        wanted = await index_rows(kind, documents)
        renamed = await self._renamed(kind, wanted, documents)
        if not renamed and not _changes(wanted, await self.stored(kind, list(wanted))):
            return []
        async with self._sql.begin() as tx:
            await lock_writers(self._sql, tx)
            found = (await tx.execute(_BY_KEYS, {"kind": kind, "keys": list(wanted)})).all()
            stored = {row.key: row for row in found}
            changed = list(dict.fromkeys([*_changes(wanted, stored), *renamed]))
            rows = {key: row for key in changed if (row := wanted[key]) is not None}
            await _remove(tx, [stored[key].id for key in changed if key not in rows])
            await self._insert(tx, [row for key, row in rows.items() if key not in stored])
            await self._update(tx, [(stored[key], row) for key, row in rows.items() if key in stored])
            await self.names.update_owners(tx, kind, {key: documents[key] for key in changed})
            await self.names.count_tags(tx, _tag_changes(changed, rows, stored))
        return changed

    async def reweigh(self, kind: str, weights: Mapping[str, float]) -> tuple[list[str], list[str]]:
        """Change the weights of documents. Returns the keys that changed, and those that are not indexed.

        One statement for each `READ_STEP` keys, and one transaction if a weight changed.
        """
        wanted = [key for key in weights if fits_column(key)]
        stored = dict[str, Row[Any]]()
        for step in chunks(wanted, READ_STEP):
            found = await self._sql.fetch_all(_WEIGHTS_BY_KEYS, kind=kind, keys=step)
            stored.update((row.key, row) for row in found)
            await asyncio.sleep(0)  # a read of SQLite does not let other work of the event loop run
        changed = {key: weights[key] for key, row in stored.items() if row.weight != weights[key]}
        if changed:
            async with self._sql.begin() as tx:
                await lock_writers(self._sql, tx)
                rows = [
                    {"of_id": stored[key].id, "of_kind": kind, "of_key": key, "new_weight": weight}
                    for key, weight in changed.items()
                ]
                await tx.execute(_SET_WEIGHT, rows)
                await self.names.reweigh(tx, kind, changed)
        return list(changed), [key for key in wanted if key not in stored]

    async def _insert(self, tx: AsyncConnection, rows: Sequence[dict[str, Any]]) -> None:
        if not rows:
            return
        inserted = await tx.execute(
            insert(SEARCH_DOCUMENT).returning(SEARCH_DOCUMENT.c.id, SEARCH_DOCUMENT.c.terms), rows
        )
        await self._write_words(tx, [(row.id, row.terms) for row in inserted])

    async def _update(self, tx: AsyncConnection, rows: Sequence[tuple[Row[Any], dict[str, Any]]]) -> None:
        # The words are the costly part of the index, so they are written only if they changed.
        alike = [(stored, row) for stored, row in rows if stored.terms == row["terms"]]
        others = [(stored, row) for stored, row in rows if stored.terms != row["terms"]]
        for part, names in ((alike, _COLUMNS_BUT_TERMS), (others, (*_COLUMNS_BUT_TERMS, "terms"))):
            if part:
                values = [{"of_id": stored.id, **{f"new_{name}": row[name] for name in names}} for stored, row in part]
                await tx.execute(_OF_ID_UPDATE.values({name: bindparam(f"new_{name}") for name in names}), values)
        await self._write_words(tx, [(stored.id, row["terms"]) for stored, row in others])

    async def _write_words(self, tx: AsyncConnection, documents: Sequence[tuple[int, str]]) -> None:
        """Write the words of documents. On SQLite, triggers have done it."""
        if self._sql.dialect == "postgresql":
            await write_words(tx, documents)


def expression_for(dialect: str) -> Callable[[str, Query], str]:
    """Return the function that writes a query in the language of a database."""
    return fts5_expression if dialect == "sqlite" else tsquery_expression


async def lock_writers(sql: Sql, tx: AsyncConnection) -> None:
    """Let other writers of the index wait for the end of a transaction."""
    if sql.dialect == "postgresql":
        await tx.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _WRITER_LOCK})


async def _remove(tx: AsyncConnection, ids: Sequence[int]) -> None:
    if ids:
        await tx.execute(delete(SEARCH_DOCUMENT).where(SEARCH_DOCUMENT.c.id.in_(ids)))


_WRITE_WORDS = text(
    "INSERT INTO search_words (rowid, terms) VALUES (:id, CAST(:terms AS tsvector)) "
    "ON CONFLICT (rowid) DO UPDATE SET terms = excluded.terms"
)


async def write_words(tx: AsyncConnection, documents: Sequence[tuple[int, str]]) -> None:
    """Write the words of documents, by their ids, on PostgreSQL."""
    if documents:
        await tx.execute(_WRITE_WORDS, [{"id": id, "terms": tsvector_literal(id, terms)} for id, terms in documents])


def fits_column(key: str) -> bool:
    """Whether a key or a username fits its column. Another service can write any text."""
    return len(key) <= MAX_KEY_CHARACTERS and "\0" not in key


def _row(kind: str, key: str, document: SearchDocument) -> dict[str, Any]:
    return {
        "kind": kind,
        "key": key,
        "author": document.author if fits_column(document.author) else "",
        "created_ms": document.created_ms,
        "weight": document.finite_weight,
        "tags": ",".join(indexed_tags(document)),
        "terms": terms_of(kind, document),
    }


async def index_rows(kind: str, documents: Mapping[str, SearchDocument | None]) -> dict[str, dict[str, Any] | None]:
    """Return the wanted rows by key, without keys that no row can have. Other work of the loop runs in between."""
    rows: dict[str, dict[str, Any] | None] = {}
    ends = monotonic() + TURN_SECONDS
    for key, document in documents.items():
        if monotonic() >= ends:
            await asyncio.sleep(0)
            ends = monotonic() + TURN_SECONDS
        if fits_column(key):
            rows[key] = None if document is None else _row(kind, key, document)
    return rows


def _changes(wanted: Mapping[str, dict[str, Any] | None], stored: Mapping[str, Row[Any]]) -> list[str]:
    """Return the keys whose stored row differs from the wanted one."""
    return [key for key, row in wanted.items() if not _is_stored(row, stored.get(key))]


def _is_stored(row: dict[str, Any] | None, stored: Row[Any] | None, *, but: str = "") -> bool:
    """Whether a row is stored as it is, but for one column if that is named."""
    if row is None or stored is None:
        return row is None and stored is None
    return all(stored._mapping[name] == value for name, value in row.items() if name != but)


def _tag_changes(
    keys: Sequence[str], rows: Mapping[str, dict[str, Any]], stored: Mapping[str, Row[Any]]
) -> Counter[str]:
    """Return by how much the number of documents with a tag changes."""
    counts: Counter[str] = Counter()
    for key in keys:
        counts.update(split_tags(rows[key]["tags"] if key in rows else ""))
        counts.subtract(split_tags(stored[key].tags if key in stored else ""))
    return Counter({tag: count for tag, count in counts.items() if count})


def split_tags(joined: str) -> list[str]:
    """Return the tags of a document's row."""
    return [tag for tag in joined.split(",") if tag]
