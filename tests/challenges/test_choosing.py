"""Turns, diversity and order, on rows made up for it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from plaza.challenges.choosing import MOST_OF_AUTHOR, MOST_OF_CHALLENGE, Own, Taste, choose


def row(id: int, challenge: int, category: int, author: str, day: int = 9, reactions: int = 0) -> Any:
    return SimpleNamespace(
        id=id,
        challenge_id=challenge,
        category=category,
        username=author,
        day=day,
        reactions=reactions,
        title=f"challenge {challenge}",
    )


def taste(**known: Any) -> Taste:
    return Taste(**{"days": [0] * 5, "reactions": {}, "shown": {}, "pool": frozenset(), **known})


def test_each_source_has_its_share_and_a_fifth_is_to_discover() -> None:
    """Category 1, challenges 200 on and challenges 300 on are somebody's; categories 4 and 5 are new to them."""
    rows = [row(n, 100 + n, 1, f"a{n}") for n in range(20)]
    rows += [row(20 + n, 200 + n % 5, 2, f"b{n}") for n in range(20)]
    rows += [row(40 + n, 300 + n % 10, 3, f"c{n}") for n in range(20)]
    rows += [row(60 + n, 400 + n, 4 + n % 2, f"d{n}", reactions=5 * (n < 10)) for n in range(20)]
    mine = taste(
        days=[12, 0, 0, 0, 0],
        reactions={200 + n: 4 for n in range(5)},
        alike={300 + n: Own(1, "Run", "joined") for n in range(10)},
    )
    kinds = Counter(reason.split(" ")[0] for _, reason in choose(rows, mine, 20))
    assert kinds == {"12": 4, "You": 4, "Because": 8, "Popular:": 2, "New": 2}


def test_few_of_one_author_or_challenge_as_long_as_there_are_others() -> None:
    rows = [row(n, 1, 1, "loud", reactions=9) for n in range(30)]
    rows += [row(30 + n, 2, 1, f"quiet{n}") for n in range(5)]
    rows += [row(40 + n, 10 + n, 1, f"other{n}") for n in range(5)]
    chosen = [one for one, _ in choose(rows, taste(), 10)]
    assert Counter(one.username for one in chosen)["loud"] == MOST_OF_AUTHOR
    assert Counter(one.challenge_id for one in chosen)[2] == MOST_OF_CHALLENGE
    assert len(choose(rows, taste(), 40)) == 40  # with nobody else left, all of them


def test_the_recent_come_first_and_what_was_shown_before_comes_last() -> None:
    rows = [row(n, n, 1, f"a{n}", day=n) for n in range(1, 7)]
    known = taste(days=[3, 0, 0, 0, 0], shown={6: (1, 8), 5: (2, 8)})
    assert [one.id for one, _ in choose(rows, known, 6)][:4] == [4, 3, 2, 1]
