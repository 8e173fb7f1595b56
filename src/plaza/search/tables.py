"""The index in SQL: documents with their words, and names for suggestions.

The words of a document are one text in `terms`, as `terms.py` writes it. What finds them is the table `search_words`,
which the migration creates. The databases differ there: SQLite's is an FTS5 table, which triggers keep up to date;
PostgreSQL's has a `tsvector` with a GIN index.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
    text,
)

from plaza.core.sql import metadata

METADATA = metadata()

MAX_KEY_CHARACTERS = 64

# Compared byte by byte, so that a range of names is a prefix in every locale.
_NAME = String(128).with_variant(String(128, collation="C"), "postgresql")

SEARCH_DOCUMENT = Table(
    "search_document",
    METADATA,
    # SQLite counts up only in a column of the type INTEGER. Newer documents have higher ids.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("kind", String(16), nullable=False),
    Column("key", String(MAX_KEY_CHARACTERS), nullable=False),
    Column("author", String(MAX_KEY_CHARACTERS), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("weight", Float, nullable=False),
    Column("tags", Text, nullable=False),  # separated by commas
    Column("terms", Text, nullable=False),
    UniqueConstraint("kind", "key"),
    Index(None, "author"),
)

# Prefixes of up to so many characters have an index of their own, in which the heaviest names come first: half of all
# names can begin with the same letter. Longer prefixes begin few names, which are sorted.
INDEXED_PREFIXES = (1, 2, 3, 4)


def name_prefix(length: int) -> ColumnElement[str]:
    """Return the first characters of a name, as the index of this length has them."""
    return literal_column(f"substr(name, 1, {length})", String)


# A name by which users and tags are suggested. A user has several: the username and the words of the display name.
SEARCH_NAME = Table(
    "search_name",
    METADATA,
    Column("kind", String(16), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("weight", Float, nullable=False),
    Index(None, "kind", "key"),
    *(
        Index(f"ix_search_name_prefix_{length}", "kind", name_prefix(length), text("weight DESC"), "name")
        for length in INDEXED_PREFIXES
    ),
)

# The trigrams of names, which find a name with a wrong letter. Both databases have it, because PostgreSQL's `pg_trgm`
# is not installed everywhere.
SEARCH_TRIGRAM = Table(
    "search_trigram",
    METADATA,
    Column("kind", String(16), primary_key=True),
    Column("trigram", String(3), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Index(None, "kind", "name"),
)

# How far an interrupted rebuild has come, and when: the last key of each kind; `done` is 1 for a kind that is complete.
SEARCH_REBUILD = Table(
    "search_rebuild",
    METADATA,
    Column("kind", String(16), primary_key=True),
    Column("after", String(MAX_KEY_CHARACTERS), nullable=False),
    Column("done", Integer, nullable=False),
    Column("saved_ms", BigInteger, nullable=False, server_default="0"),
)
