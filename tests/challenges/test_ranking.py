"""Turns, diversity and order, on rows made up for it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from plaza.challenges.recommendation.ranking import MOST_OF_AUTHOR, MOST_OF_CHALLENGE, Candidate, Menu, Own, Taste


def post(id: int, challenge: int, category: int, author: str, day: int = 9) -> Candidate:
    return Candidate(id, challenge, author, day, False, category, True, 99)


def taste(**known: Any) -> Taste:
    return Taste(**{"days": [0] * 5, "reactions": {}, "shown": {}, "pool": frozenset(), **known})


def test_each_source_has_its_share_and_a_fifth_is_to_discover() -> None:
    """Category 1, challenges 200 on and challenges 300 on are somebody's; categories 4 and 5 are new to them."""
    rows = [post(n, 100 + n, 1, f"a{n}") for n in range(20)]
    rows += [post(20 + n, 200 + n % 5, 2, f"b{n}") for n in range(20)]
    rows += [post(40 + n, 300 + n % 10, 3, f"c{n}") for n in range(20)]
    rows += [post(60 + n, 400 + n, 4 + n % 2, f"d{n}") for n in range(20)]
    mine = taste(
        days=[12, 0, 0, 0, 0],
        reactions={200 + n: 4 for n in range(5)},
        alike={300 + n: Own(1, "Run", "joined") for n in range(10)},
        popular={60 + n: 5 for n in range(10)},
    )
    chosen = Menu(rows, mine).choose(20)
    assert Counter(one.source for one in chosen) == {"category": 4, "challenge": 4, "alike": 8, "discover": 4}
    assert sum(one.post.id in mine.popular for one in chosen) == 2


def test_few_of_one_author_or_challenge_as_long_as_there_are_others() -> None:
    rows = [post(n, 1, 1, "loud") for n in range(30)]
    rows += [post(30 + n, 2, 1, f"quiet{n}") for n in range(5)]
    rows += [post(40 + n, 10 + n, 1, f"other{n}") for n in range(5)]
    menu = Menu(rows, taste(popular=dict.fromkeys(range(30), 9)))
    chosen = [one.post for one in menu.choose(10)]
    assert Counter(one.username for one in chosen)["loud"] == MOST_OF_AUTHOR
    assert Counter(one.challenge_id for one in chosen)[2] == MOST_OF_CHALLENGE
    assert len(menu.choose(40)) == 40  # with nobody else left, all of them


def test_the_recent_come_first_and_what_was_shown_before_comes_last() -> None:
    rows = [post(n, n, 1, f"a{n}", day=n) for n in range(1, 7)]
    known = taste(days=[3, 0, 0, 0, 0], shown={6: (1, 8), 5: (2, 8)})
    assert [one.post.id for one in Menu(rows, known).choose(6)][:4] == [4, 3, 2, 1]


def test_to_ask_for_more_changes_nothing_about_the_first_ones() -> None:
    dice = random.Random(7)
    for _ in range(50):
        posts = [
            post(n, dice.randrange(12), dice.randint(1, 5), f"a{dice.randrange(20)}", dice.randrange(9))
            for n in range(60)
        ]
        known = taste(
            days=[dice.randrange(3) for _ in range(5)],
            reactions={dice.randrange(12): 2},
            alike={dice.randrange(12): Own(1, "Run", "joined")},
            popular={dice.randrange(60): n for n in range(9)},
        )
        menu, but = Menu(posts, known), {dice.randrange(60) for _ in range(9)}
        whole = menu.choose(60, but)
        assert {one.post.id for one in whole} == set(range(60)) - but
        assert all(menu.choose(n, but) == whole[:n] for n in range(1, 60))
