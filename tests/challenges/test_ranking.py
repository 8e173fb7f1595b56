"""The order of sources, diversity and recency of selected posts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from plaza.challenges.recommendation.ranking import (
    LEADING_PLACES,
    MAX_PER_AUTHOR,
    MAX_PER_CHALLENGE,
    Candidate,
    CandidateSelector,
    OwnChallenge,
    ViewerProfile,
)


def post(id: int, challenge: int, category: int, author: str, day: int = 9) -> Candidate:
    return Candidate(day, id, challenge, author, False, category, True, 99)


def profile(**known: Any) -> ViewerProfile:
    return ViewerProfile(**{"days": [0] * 5, "reactions": {}, "shown": {}, "pool": frozenset(), **known})


def test_likely_posts_come_first_and_every_source_has_its_places() -> None:
    """The viewer knows category 1 and challenges from 200 and 300 on; categories 4 and 5 are new."""
    rows = [post(n, 100 + n, 1, f"a{n}") for n in range(20)]
    rows += [post(20 + n, 200 + n % 5, 2, f"b{n}") for n in range(20)]
    rows += [post(40 + n, 300 + n % 10, 3, f"c{n}") for n in range(20)]
    rows += [post(60 + n, 400 + n, 4 + n % 2, f"d{n}") for n in range(20)]
    mine = profile(
        days=[12, 0, 0, 0, 0],
        reactions={200 + n: 4 for n in range(5)},
        similar={300 + n: OwnChallenge(1, "Run", "joined") for n in range(10)},
        popular={60 + n: 5 for n in range(10)},
    )
    chosen = CandidateSelector(rows, mine).choose(20)
    assert {one.source for one in chosen[:LEADING_PLACES]} == {"similar", "challenge"}
    assert Counter(one.source for one in chosen[LEADING_PLACES:]) == dict.fromkeys(
        ("similar", "challenge", "category", "popular", "new"), (20 - LEADING_PLACES) // 5
    )


def test_a_new_user_gets_popular_posts_first_then_new_ones_of_every_category() -> None:
    rows = [post(n, n, 1 + n % 5, f"a{n}", day=n) for n in range(100)]
    popular = {n: 100 - n for n in range(50)}
    chosen = CandidateSelector(rows, profile(popular=popular)).choose(20)
    assert [one.post.id for one in chosen[:LEADING_PLACES]] == list(range(LEADING_PLACES))
    new = [one.post for one in chosen if one.source == "new"]
    assert {one.category for one in new} == {1, 2, 3, 4, 5}
    assert all(one.id >= 90 for one in new)


def test_posts_that_cannot_be_shown_leave_their_place_to_the_next_of_the_source() -> None:
    rows = [post(n, 1 + n // 3, 1, f"a{n}") for n in range(30)]
    known = profile(popular={n: 100 - n for n in range(30)})
    selector = CandidateSelector(rows, known, lambda post: post.id % 2 == 1)
    assert [one.post.id for one in selector.choose(5)] == [1, 3, 5, 7, 9]


def test_few_posts_of_one_author_or_challenge_while_there_are_others() -> None:
    rows = [post(n, 1, 1, "loud") for n in range(30)]
    rows += [post(30 + n, 2, 1, f"quiet{n}") for n in range(5)]
    rows += [post(40 + n, 10 + n, 1, f"other{n}") for n in range(5)]
    selector = CandidateSelector(rows, profile(popular=dict.fromkeys(range(30), 9)))
    chosen = [one.post for one in selector.choose(10)]
    assert Counter(one.username for one in chosen)["loud"] == MAX_PER_AUTHOR
    assert Counter(one.challenge_id for one in chosen)[2] == MAX_PER_CHALLENGE
    assert len(selector.choose(40)) == 40  # all, if there are no others


def test_recent_posts_come_first_and_shown_ones_last() -> None:
    rows = [post(n, n, 1, f"a{n}", day=n) for n in range(1, 7)]
    known = profile(days=[3, 0, 0, 0, 0], shown={6: (1, 8), 5: (2, 8)})
    assert [one.post.id for one in CandidateSelector(rows, known).choose(6)][:4] == [4, 3, 2, 1]


def test_a_larger_limit_only_appends_posts() -> None:
    rng = random.Random(7)
    for _ in range(50):
        posts = [
            post(n, rng.randrange(12), rng.randint(1, 5), f"a{rng.randrange(20)}", rng.randrange(9)) for n in range(60)
        ]
        known = profile(
            days=[rng.randrange(3) for _ in range(5)],
            reactions={rng.randrange(12): 2},
            similar={rng.randrange(12): OwnChallenge(1, "Run", "joined")},
            popular={rng.randrange(60): n for n in range(9)},
        )
        selector, excluded = CandidateSelector(posts, known), {rng.randrange(60) for _ in range(9)}
        complete = selector.choose(60, excluded)
        assert {one.post.id for one in complete} == set(range(60)) - excluded
        assert all(selector.choose(n, excluded) == complete[:n] for n in range(1, 60))
