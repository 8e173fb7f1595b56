"""A query in the database's own language: FTS5's, or PostgreSQL's `tsquery`.

Only terms enter the expression, never what the user typed. Terms are letters, digits, marks and characters for private
use, so no syntax of the database gets through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, literal_column

from plaza.search.query import Phrase, Query
from plaza.search.terms import AUTHOR, TAG, name_term, word_term

# PostgreSQL reads all matches of two frequent words before it knows which are the newest. So every document has the
# numbers of its windows, some upper bits of its id, as terms, and the newest windows are searched first: the newest
# 8,192 to 16,384 documents, then 4 and 16 times as many, then all. Each size of a window has a mark.
WINDOWS: Final = (("\ue030", 13), ("\ue031", 15), ("\ue032", 17))


def _window_terms(id: int) -> list[str]:
    return [f"'{mark}{id >> bits}'" for mark, bits in WINDOWS]


def newest_windows() -> list[ColumnElement[Any]]:
    """Return expressions on the last `id`: the newest two windows of each size as `tsquery`, and their lowest id.

    Their names are `windows0` and `lowest0`, `windows1` and `lowest1`, and so on.
    """
    found: list[ColumnElement[Any]] = []
    for size, (mark, bits) in enumerate(WINDOWS):
        last, before = f"id >> {bits}", f"greatest((id >> {bits}) - 1, 0)"
        query = f"CAST(concat('{mark}', {last}, ' | {mark}', {before}) AS tsquery)"
        found += [
            literal_column(query).label(f"windows{size}"),
            literal_column(f"{before} << {bits}").label(f"lowest{size}"),
        ]
    return found


def fts5_expression(kind: str, query: Query) -> str:
    """Return the expression for `search_words MATCH`."""
    wanted = [f'"{name}"' for name in _names(kind, query)]
    wanted += [_fts5_phrase(kind, phrase) for phrase in query.phrases]
    expression = " AND ".join(wanted)
    if query.excluded:
        excluded = " OR ".join(_fts5_phrase(kind, phrase) for phrase in query.excluded)
        expression = f"({expression}) NOT ({excluded})"
    return expression


def _fts5_phrase(kind: str, phrase: Phrase) -> str:
    words = " ".join(word_term(kind, word) for word in phrase.words)
    return f'"{words}"' + (" *" if phrase.is_prefix else "")


def tsquery_expression(kind: str, query: Query) -> str:
    """Return the expression to cast to `tsquery`."""
    wanted = [f"'{name}'" for name in _names(kind, query)]
    wanted += [_tsquery_phrase(kind, phrase) for phrase in query.phrases]
    return " & ".join([*wanted, *(f"!{_tsquery_phrase(kind, phrase)}" for phrase in query.excluded)])


def _tsquery_phrase(kind: str, phrase: Phrase) -> str:
    words = [f"'{word_term(kind, word)}'" for word in phrase.words]
    if phrase.is_prefix:
        words[-1] += ":*"
    return f"({' <-> '.join(words)})"


def _names(kind: str, query: Query) -> list[str]:
    """Return the terms for the tags and the authors."""
    tags = [name_term(kind, TAG, tag) for tag in query.tags]
    return [*tags, *(name_term(kind, AUTHOR, author) for author in query.authors)]


def tsvector_literal(id: int, terms: str) -> str:
    """Return the terms of a document and its windows as text to cast to `tsvector`, with positions."""
    positions: dict[str, list[int]] = {}
    for position, term in enumerate(terms.split(" "), 1):
        positions.setdefault(term, []).append(position)
    words = [f"'{term}':{_positions(found)}" for term, found in positions.items()]
    return " ".join([*words, *_window_terms(id)])


def _positions(found: Sequence[int]) -> str:
    # PostgreSQL keeps at most 255 positions of a word.
    return ",".join(str(position) for position in found[:255])
