"""Mentions in a text: what is one, and how many."""

from __future__ import annotations

import pytest

from plaza.core.mentions import MAX_MENTIONS, mentions_in


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@ana", ["ana"]),
        ("Thanks, @ana.", ["ana"]),
        ("(@ana.b_c-d, @Ben!)", ["ana.b_c-d", "Ben"]),
        ("@ana and @ana again", ["ana"]),
        ("ana@mail.example", []),
        ("https://example.org/@ana", []),
        ("see https://example.org/?to=@ana @ben", ["ben"]),
        ("@me @AUTH @", []),
        ("@@ana", []),
        ("@" + "a" * 31, []),
        ("é@ana", []),
    ],
)
def test_mentions_are_found(text: str, names: list[str]) -> None:
    assert mentions_in(text) == names


def test_a_text_mentions_at_most_twenty_users() -> None:
    assert len(mentions_in(" ".join(f"@user{number}" for number in range(50)))) == MAX_MENTIONS


def test_a_long_text_of_signs_is_searched_in_linear_time() -> None:
    assert mentions_in("@" * 200_000 + " https://" * 20_000) == []
