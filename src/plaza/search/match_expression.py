"""A query in the database's own language: FTS5's, or PostgreSQL's `tsquery`.

Only terms enter the expression, never what the user typed. Terms are letters, digits, marks and characters for private
use, so no syntax of the database gets through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plaza.search.frequencies import WordFrequencies
from plaza.search.query import Phrase, Query
from plaza.search.terms import AUTHOR, TAG, name_term, word_term

# PostgreSQL reads all matches of two frequent words before it knows which are the newest. So every document has the
# numbers of its windows, some upper bits of its id, as terms. The newest windows are searched one by one: so many of
# 8,192 documents, then of 32,768 and 131,072, then all that is older. Each size of a window has a mark.
WINDOWS: Final = (("\ue030", 13, 2), ("\ue031", 15, 2), ("\ue032", 17, 16))


def _window_terms(id: int) -> list[str]:
    return [f"'{mark}{id >> bits}'" for mark, bits, _ in WINDOWS]


def fts5_expression(kind: str, query: Query) -> str:
    """Return the expression for `search_words MATCH`."""
    wanted = [f'"{name}"' for name in _names(kind, query)]
    wanted += [_fts5_phrase(kind, phrase) for phrase in query.phrases]
    excluded = [f'"{name}"' for name in _excluded_names(kind, query)]
    excluded += [_fts5_phrase(kind, phrase) for phrase in query.excluded]
    expression = " AND ".join(wanted)
    return f"({expression}) NOT ({' OR '.join(excluded)})" if excluded else expression


def _fts5_phrase(kind: str, phrase: Phrase) -> str:
    words = " ".join(word_term(kind, word) for word in phrase.words)
    return f'"{words}"' + (" *" if phrase.is_prefix else "")


def tsquery_expression(kind: str, query: Query) -> str:
    """Return the expression to cast to `tsquery`."""
    wanted = [f"'{name}'" for name in _names(kind, query)]
    wanted += [_tsquery_phrase(kind, phrase) for phrase in query.phrases]
    excluded = [f"!'{name}'" for name in _excluded_names(kind, query)]
    excluded += [f"!{_tsquery_phrase(kind, phrase)}" for phrase in query.excluded]
    return " & ".join([*wanted, *excluded])


def rarest_first(kind: str, query: Query, frequencies: WordFrequencies) -> list[tuple[float, str]]:
    """Return the conditions of a query, and in about how many documents each is met."""
    conditions = [(frequencies.documents(name), f"'{name}'") for name in _names(kind, query)]
    for phrase in query.phrases:
        *words, last = (word_term(kind, word) for word in phrase.words)
        counts = [*map(frequencies.documents, words), frequencies.documents(last, is_prefix=phrase.is_prefix)]
        conditions.append((min(counts), _tsquery_phrase(kind, phrase)))
    return sorted(conditions)


def most_frequent_beginning(kind: str, query: Query, frequencies: WordFrequencies) -> float:
    """Return about how many documents have the most frequent of the beginnings of words in a query."""
    beginnings = [word_term(kind, phrase.words[-1]) for phrase in query.phrases if phrase.is_prefix]
    return max(frequencies.documents(term, is_prefix=True) for term in beginnings)


def _tsquery_phrase(kind: str, phrase: Phrase) -> str:
    words = [f"'{word_term(kind, word)}'" for word in phrase.words]
    if phrase.is_prefix:
        words[-1] += ":*"
    return f"({' <-> '.join(words)})"


def _names(kind: str, query: Query) -> list[str]:
    """Return the terms for the tags and the authors."""
    return _name_terms(kind, query.tags, query.authors)


def _excluded_names(kind: str, query: Query) -> list[str]:
    return _name_terms(kind, query.excluded_tags, query.excluded_authors)


def _name_terms(kind: str, tags: Sequence[str], authors: Sequence[str]) -> list[str]:
    of_tags = [name_term(kind, TAG, tag) for tag in tags]
    return [*of_tags, *(name_term(kind, AUTHOR, author) for author in authors)]


def tsvector_literal(id: int, terms: str) -> str:
    """Return the terms of a document and its windows as text to cast to `tsvector`, with positions."""
    positions: dict[str, list[int]] = {}
    for position, term in enumerate(terms.split(), 1):  # none of an item named 🎁
        positions.setdefault(term, []).append(position)
    words = [f"'{term}':{_positions(found)}" for term, found in positions.items()]
    return " ".join([*words, *_window_terms(id)])


def _positions(found: Sequence[int]) -> str:
    # PostgreSQL keeps at most 255 positions of a word.
    return ",".join(str(position) for position in found[:255])
