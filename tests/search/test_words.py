"""Words of texts and queries: folded, in any script."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaza.core.text_folding import fold
from plaza.search.query import MAX_CONDITIONS, Phrase, Query, parse_query
from plaza.search.words import words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("Été ÉTÉ ete Straße", ["ete", "ete", "ete", "strasse"]),
        ("ＦＵＬＬ ｗｉｄｔｈ", ["full", "width"]),
        ("Zażółć gęślą Søren ISPARTA ısparta İzmir", ["zazolc", "gesla", "soren", "isparta", "isparta", "izmir"]),
        ("𝐇𝐞𝐥𝐥𝐨 ᴬϒ", ["hello", "aυ"]),
        ("gar\u00adden ❤\ufe0f ☀\ufe0f 1\ufe0f\u20e3", ["garden", "1"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("が and か", ["が", "and", "か"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("مُحَمَّد محـــمد", ["محمد", "محمد"]),
        ("စာ။စာ", ["စ", "ာ", "စ", "ာ"]),
        ("don't stop-me_now", ["don", "t", "stop", "me", "now"]),
        ("  \n\t ", []),
    ],
)
def test_words_are_folded_in_any_script(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(st.text(max_size=200))
def test_folding_twice_changes_nothing(text: str) -> None:
    assert [fold(word) for word in words_of(text)] == words_of(text)


def test_every_character_is_folded_completely() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
    assert [character for character in characters if fold(fold(character)) != fold(character)] == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("red Gard", Query((Phrase(("red",), True), Phrase(("gard",), True)))),
        ('"red garden" x', Query((Phrase(("red", "garden")), Phrase(("x",))))),
        ("seed -weed", Query((Phrase(("seed",), True),), (Phrase(("weed",)),))),
        ('a -"b c"', Query((Phrase(("a",)),), (Phrase(("b", "c")),))),
        ("#Été from:@Ana.B", Query(tags=("ete",), authors=("ana.b",))),
        ("a -from:Ben -#Été", Query((Phrase(("a",)),), excluded_tags=("ete",), excluded_authors=("ben",))),
        ("“red garden” „x y“", Query((Phrase(("red", "garden")), Phrase(("x", "y"))))),
        ("#a#bc from:x!yz", Query((Phrase(("a", "bc"), True), Phrase(("from", "x", "yz"), True)))),
        ("well-known", Query((Phrase(("well", "known"), True),))),
        ("to be " * 10, Query((Phrase(("to",), True), Phrase(("be",), True)))),
        ("a-b-" * 9 + "c", Query((Phrase(("a", "b") * 3),))),
        ("東京", Query((Phrase(("東", "京")),))),
        ('"unclosed', Query((Phrase(("unclosed",), True),))),
        ("- # ()", Query()),
        ("from:", Query((Phrase(("from",), True),))),
    ],
)
def test_queries_are_parsed(text: str, query: Query) -> None:
    assert parse_query(text) == query


@given(st.text(max_size=300))
def test_every_text_is_a_query_of_bounded_size(text: str) -> None:
    query = parse_query(text)
    assert len(query.phrases) + len(query.tags) + len(query.authors) + len(query.excluded) <= 2 * MAX_CONDITIONS
