"""The order of results, with its reasons. Pure functions.

Posts rank by relevance, freshness and engagement. Users rank by whether the viewer follows them, how well the name
matches, then followers. Articles rank by their own score, which contains time and votes. Challenges and items rank by
relevance, then weight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import log1p
from typing import Final

from msgspec import Struct

from plaza.core.text_folding import fold
from plaza.search.index import SearchMatch
from plaza.search.query import Phrase, Query
from plaza.search.terms import words_in
from plaza.search.words import words_of

# A post loses half of its freshness in two weeks, and never all of it.
HALF_LIFE_DAYS: Final = 14.0
FRESHNESS_FLOOR: Final = 0.2
DAY_MS: Final = 86_400_000

# A word that only begins with what was searched counts less than the word itself.
PREFIX_VALUE: Final = 0.6


class RankedResult(Struct, frozen=True):
    """A document's key, its score, and the parts of the score by name."""

    key: str
    score: float
    reasons: dict[str, float]


Rank = Callable[[SearchMatch, Query, int, bool], dict[str, float]]


def rank(
    kind: str, candidates: Sequence[SearchMatch], query: Query, now_ms: int, preferred: Collection[str]
) -> list[RankedResult]:
    """Return the candidates, best first. `preferred` are the keys that the viewer sees first."""
    combine, parts = _RANKS[kind]
    results = []
    for candidate in candidates:
        reasons = parts(candidate, query, now_ms, candidate.key in preferred)
        results.append(RankedResult(candidate.key, combine(reasons), reasons))
    return sorted(results, key=lambda result: (-result.score, result.key))


def relevance(terms: str, query: Query) -> float:
    """Return how much of a text is about the query, from 0 to about 2."""
    if not query.phrases:
        return 1.0
    words = words_in(terms)
    found = sum(_best_match(words, phrase) for phrase in query.phrases) / len(query.phrases)
    # A short text with the words is more about them than a long one.
    return found * (1 + 1 / (1 + len(words) / 20))


def _best_match(words: Sequence[str], phrase: Phrase) -> float:
    last = phrase.words[-1]
    if not phrase.is_prefix:
        return 1.0  # it matches as it is, or it would not be a result
    return 1.0 if last in words else PREFIX_VALUE


def _post_parts(post: SearchMatch, query: Query, now_ms: int, preferred: bool) -> dict[str, float]:
    age_days = max(now_ms - post.created_ms, 0) / DAY_MS
    return {
        "relevance": relevance(post.terms, query),
        "freshness": FRESHNESS_FLOOR + (1 - FRESHNESS_FLOOR) * 0.5 ** (age_days / HALF_LIFE_DAYS),
        "engagement": 1 + log1p(max(post.weight, 0)) / 4,
    }


def _user_parts(user: SearchMatch, query: Query, now_ms: int, preferred: bool) -> dict[str, float]:
    return {
        "followed": 1_000.0 if preferred else 0.0,
        "name": 100.0 * _name_match(user, query),
        "followers": log1p(max(user.weight, 0)),
    }


def _name_match(user: SearchMatch, query: Query) -> int:
    """Return 3 for the username itself, 2 if it begins with the words, 1 if a word of the display name does, else 0."""
    wanted, name = "".join(query.words), "".join(words_of(user.key))
    if wanted == name:
        return 3
    if name.startswith(wanted) or fold(user.key).startswith(wanted):
        return 2
    return int(any(word.startswith(wanted) for word in words_in(user.terms)))


def _article_parts(article: SearchMatch, query: Query, now_ms: int, preferred: bool) -> dict[str, float]:
    return {"score": article.weight}


def _plain_parts(candidate: SearchMatch, query: Query, now_ms: int, preferred: bool) -> dict[str, float]:
    return {"relevance": relevance(candidate.terms, query), "weight": log1p(max(candidate.weight, 0)) / 10}


def _product(parts: dict[str, float]) -> float:
    result = 1.0
    for value in parts.values():
        result *= value
    return result


def _sum(parts: dict[str, float]) -> float:
    return sum(parts.values())


_RANKS: Final[dict[str, tuple[Callable[[dict[str, float]], float], Rank]]] = {
    "posts": (_product, _post_parts),
    "users": (_sum, _user_parts),
    "articles": (_sum, _article_parts),
    "challenges": (_sum, _plain_parts),
    "items": (_sum, _plain_parts),
}
