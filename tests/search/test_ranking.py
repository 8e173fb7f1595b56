"""The order of results, and its reasons."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.search.index import SearchMatch
from plaza.search.query import parse_query
from plaza.search.ranking import DAY_MS, rank
from plaza.search.terms import word_term

NOW_MS = 100 * DAY_MS


def match(kind: str, key: str, text: str, *, days: float = 0, weight: float = 0) -> SearchMatch:
    terms = " ".join(word_term(kind, word) for word in text.split())
    return SearchMatch(key, "ana", round(NOW_MS - days * DAY_MS), weight, terms)


def order(kind: str, q: str, *matches: SearchMatch, followed: tuple[str, ...] = ()) -> list[str]:
    return [result.key for result in rank(kind, matches, parse_query(q), NOW_MS, followed)]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"days": 1}, {"days": 15}),
        ({"weight": 9}, {"weight": 3}),
        ({"text": "red lake"}, {"text": "red lakes"}),  # the word itself, and a longer one
        ({"text": "red lake"}, {"text": "red lake " + "far " * 40}),
        ({"days": 3, "weight": 60}, {"days": 0}),
        ({"days": 0}, {"days": 400, "weight": 60}),
    ],
)
def test_posts_rank_by_relevance_freshness_and_engagement(better: dict[str, Any], worse: dict[str, Any]) -> None:
    matches = [match("posts", key, **{"text": "red lake", **given}) for key, given in (("a", worse), ("b", better))]
    assert order("posts", "red lake", *matches) == ["b", "a"]


def test_users_rank_by_follow_then_name_then_followers() -> None:
    users = [
        match("users", "hannah", "hannah", weight=1_000),
        match("users", "ana", "ana"),
        match("users", "anabel", "anabel", weight=50),
        match("users", "zoe", "zoe ana", weight=100),
    ]
    assert order("users", "ana", *users) == ["ana", "anabel", "zoe", "hannah"]
    assert order("users", "ana", *users, followed=("hannah",)) == ["hannah", "ana", "anabel", "zoe"]


@pytest.mark.parametrize("kind", ["articles", "challenges", "items"])
def test_other_kinds_rank_by_their_score_or_members(kind: str) -> None:
    matches = [match(kind, key, "red lake", weight=weight) for key, weight in (("a", 2), ("b", 5), ("c", 3))]
    assert order(kind, "red", *matches) == ["b", "c", "a"]
