"""The index finds exactly what a search without an index would find, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from sqlalchemy import text as sql_text
from sqlalchemy.dialects import sqlite

from plaza.core.search_source import SearchDocument
from plaza.core.sql import Sql
from plaza.core.text_folding import fold
from plaza.search import index as index_module
from plaza.search import match_expression
from plaza.search import names as names_module
from plaza.search import words as words_module
from plaza.search.index import SearchIndex
from plaza.search.lost_rows import LostRows
from plaza.search.names import TAGS, distance
from plaza.search.query import Phrase, Query, parse_query
from plaza.search.words import words_of

WORDS = ["red", "Redwood", "garden", "gardening", "seed", "Été", "東京", "to", "x1", "don't"]
ODD = ['"', "'", "*", ":", "(", ")", "AND", "NOT", "OR", "NEAR", "\\", "&", "|", "!", "<->", "^", "{", "-", "#", "\x00"]


def document(text: str, author: str = "ana", tags: tuple[str, ...] = (), weight: float = 0) -> SearchDocument:
    return SearchDocument([text], author, tags, weight=weight)


async def found(index: SearchIndex, text: str, kind: str = "posts") -> set[str]:
    return {candidate.key for candidate in await index.find(kind, parse_query(text), 100, newest=True)}


async def index_with_counted_words(sql: Sql) -> SearchIndex:
    """Return an index that knows how frequent words are now."""
    if sql.dialect == "postgresql":
        async with sql.begin() as tx:
            await tx.execute(sql_text("ANALYZE search_words"))
    return SearchIndex(sql)


def contains(words: list[str], phrase: Phrase) -> bool:
    size = len(phrase.words)
    for start in range(len(words) - size + 1):
        part = words[start : start + size]
        last = part[-1].startswith(phrase.words[-1]) if phrase.is_prefix else part[-1] == phrase.words[-1]
        if tuple(part[:-1]) == phrase.words[:-1] and last:
            return True
    return False


def matches(query: Query, text: str, author: str, tags: tuple[str, ...]) -> bool:
    """The model: what the query means, without an index."""
    words = words_of(text)
    return (
        not query.is_empty
        and all(contains(words, phrase) for phrase in query.phrases)
        and not any(contains(words, phrase) for phrase in query.excluded)
        and set(query.tags) <= {fold(tag) for tag in tags}
        and set(query.authors) <= {fold(author)}
        and not set(query.excluded_tags) & {fold(tag) for tag in tags}
        and fold(author) not in query.excluded_authors
    )


async def test_words_prefixes_phrases_exclusions_tags_and_authors(sql: Sql) -> None:
    index = SearchIndex(sql)
    await index.write(
        "posts",
        {
            "1": document("The red garden", "ana", ("plants",)),
            "2": document("A garden of red seeds", "Ben.K", ("été",)),
            "3": document("東京タワーへ", "ana"),
        },
    )
    await index.write("articles", {"1": document("The red garden")})
    assert await found(index, "garden RED") == {"1", "2"}
    assert await found(index, "gard") == {"1", "2"}
    assert await found(index, '"red garden"') == {"1"}
    assert await found(index, "garden -seeds") == {"1"}
    assert await found(index, "#ete") == {"2"}
    assert await found(index, "from:ben.k garden") == {"2"}
    assert await found(index, "京タ") == {"3"}
    assert await found(index, "京ワ") == set()
    assert await found(index, "plants") == set(), "a tag in the list only is no word"
    assert await found(index, "-red") == set()
    assert await found(index, "garden", "articles") == {"1"}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(st.sampled_from([*WORDS, *ODD]), max_size=6).map(" ".join), min_size=1, max_size=5),
    query=st.one_of(
        st.lists(
            st.sampled_from([*WORDS, *ODD, '"red garden"', "-seed", "#Tag", "from:ben", "-#tag", "-from:ben", "gar"]),
            max_size=4,
        ).map(" ".join),
        st.text(max_size=40),
    ),
)
async def test_the_index_finds_what_a_scan_finds(sql: Sql, texts: list[str], query: str) -> None:
    index = SearchIndex(sql)
    await index.write("posts", {str(i): None for i in range(5)})
    documents = {str(i): (text, "ben" if i % 2 else "ana", ("tag",) if i % 3 else ()) for i, text in enumerate(texts)}
    await index.write("posts", {key: document(*parts) for key, parts in documents.items()})
    parsed = parse_query(query)
    expected = {key for key, parts in documents.items() if matches(parsed, *parts)}
    assert await found(index, query) == expected
    assert await found(await index_with_counted_words(sql), query) == expected


async def test_a_changed_document_is_found_by_its_new_words_only(sql: Sql) -> None:
    index = SearchIndex(sql)
    assert await index.write("posts", {"1": document("first words", tags=("one", "two"))}) == ["1"]
    assert await index.write("posts", {"1": document("first words", tags=("one", "two"))}) == []
    assert await index.write("posts", {"1": document("other text", tags=("two",))}) == ["1"]
    assert await found(index, "first") == set()
    assert await found(index, "#one") == set()
    assert await found(index, "other #two") == {"1"}
    assert [name.key for name in await index.names.by_prefix(TAGS, "", 10)] == ["two"]
    assert await index.write("posts", {"1": None, "2": None}) == ["1"]
    assert await found(index, "other") == set()
    assert await index.names.by_prefix(TAGS, "", 10) == []
    assert await index.names.similar(TAGS, "twoo") == []


async def test_everything_but_a_weight_misleads(sql: Sql) -> None:
    index = SearchIndex(sql)
    right = SearchDocument(["lake"], "ana", ("blue",), created_ms=5, weight=1)
    await index.write("posts", {"1": right})
    assert await index.misleading("posts", {"1": structs.replace(right, weight=2)}) == []
    others: list[dict[str, Any]] = [{"texts": ["wood"]}, {"author": "Ana"}, {"tags": ("red",)}, {"created_ms": 6}]
    for other in others:
        assert await index.misleading("posts", {"1": structs.replace(right, **other)}) == ["1"], other


async def test_odd_texts_of_other_services_are_indexed_as_far_as_columns_allow(sql: Sql) -> None:
    index = SearchIndex(sql)
    tags = ("\ufdfa" * 100, "nul\0", "a,b", "x" * 101, "good", *(f"t{n}" for n in range(200)))
    names = ["nul\0", "\ufdfa" * 100, "n" * 500, *(f"n{n}" for n in range(200))]
    odd = SearchDocument(["nul\0apple " + "\U0001d4d0" * 90], "an\0a", tags, names, weight=float("nan"))
    await index.write("posts", {"k" * 65: odd, "k\0": odd, "1": odd, "2": document("apple", "b" * 500)})
    assert await found(index, "apple") == {"1", "2"}
    assert await found(index, "#good") == {"1"}
    assert await found(index, "from:x!y") == set(), "a name that cannot be one is read as words"
    assert await index.write("posts", {"k" * 65: odd, "k\0": None, "1": odd}) == []
    assert await index.misleading("posts", {"k" * 65: odd, "1": odd}) == []
    assert await index.names.by_prefix(TAGS, "go\0", 1) == []
    assert [name.key for name in await index.names.similar(TAGS, "goo\0")] == ["good"]
    assert [name.key for name in await index.names.by_prefix(TAGS, "goo", 9)] == ["good"]
    assert len(await index.names.by_prefix("posts", "n", 500)) == names_module.MAX_NAMES - 1


async def test_a_document_without_any_word_is_indexed(sql: Sql) -> None:
    index = SearchIndex(sql)
    await index.write("items", {"1": SearchDocument(["🎁", ""]), "2": SearchDocument(["🎁 gift"])})
    assert await found(index, "gift", "items") == {"2"}
    assert await index.write("items", {"1": SearchDocument(["🎁 present"])}) == ["1"]
    assert await found(index, "present", "items") == {"1"}


async def test_a_text_of_the_longest_words_is_indexed(sql: Sql) -> None:
    index = SearchIndex(sql)
    words = " ".join(f"{n}{chr(0x10400) * 600}" for n in range(words_module.MAX_WORDS + 1))
    await index.write("items", {"1": SearchDocument([words], tags=[f"{n}{chr(0x10400) * 90}" for n in range(200)])})
    assert await found(index, "0" + chr(0x10400) * 70, "items") == {"1"}


async def test_lost_and_damaged_rows_are_found_and_restored(sql: Sql) -> None:
    index, lost_rows = SearchIndex(sql), LostRows(sql)
    await index.write("posts", {"1": document("red garden", tags=("plants",)), "2": document("🎁", ""), "k\0": None})
    await index.write("users", {"hannah": SearchDocument(["hannah"], names=["hannah"])})
    damages = {
        "sqlite": ["INSERT INTO search_words(search_words) VALUES('delete-all')", "DELETE FROM search_words_data"],
        "postgresql": ["DELETE FROM search_words", "UPDATE search_words SET terms = 'other'"],
    }
    for damage in (*damages[sql.dialect], "DELETE FROM search_trigram", "DELETE FROM search_name WHERE kind = 'tags'"):
        assert await lost_rows.find("posts", ["1", "2", "3", "k\0"]) == await lost_rows.find("users", ["hannah"]) == []
        async with sql.begin() as tx:
            await tx.execute(sql_text(damage))
        assert "1" in await lost_rows.find("posts", ["1", "2", "3", "k\0"]), damage
        for kind, key in (("posts", "1"), ("posts", "2"), ("users", "hannah")):
            await lost_rows.restore(kind, [key])
        assert await found(index, "garden") == {"1"}, damage
        assert [name.weight for name in await index.names.by_prefix(TAGS, "pl", 9)] == [1], damage
        assert [name.key for name in await index.names.similar(TAGS, "plnats")] == ["plants"], damage
        assert await index.names.owners_containing("users", "nna", 9) == ["hannah"], damage
    assert await index.write("posts", {"1": None, "2": None}) == ["1", "2"]


async def test_many_writers_count_tags_exactly(sql: Sql) -> None:
    index = SearchIndex(sql)

    async def write(round: int) -> None:
        await index.write("posts", {str(i): document("x", tags=("a", f"t{round}")) for i in range(5)})

    await asyncio.gather(*(write(round) for round in range(8)))
    counts = {name.key: name.weight for name in await index.names.by_prefix(TAGS, "", 20)}
    assert counts.pop("a") == 5
    assert sum(counts.values()) == 5


async def test_names_are_suggested_by_weight_and_corrected_by_distance(sql: Sql) -> None:
    index = SearchIndex(sql)
    users = {"ana": 5, "Andreas": 50, "hannah": 900, "anabel": 7}
    await index.write(
        "users", {name: SearchDocument([name], names=[name], weight=weight) for name, weight in users.items()}
    )
    assert [name.key for name in await index.names.by_prefix("users", "AN", 10)] == ["Andreas", "anabel", "ana"]
    assert [name.key for name in await index.names.similar("users", "anbael")] == ["anabel"]
    assert [name.key for name in await index.names.similar("users", "hanna")] == ["hannah", "ana"]
    assert await index.names.similar("users", "zebra") == []
    assert await index.names.owners_containing("users", "AN", 3) == ["hannah", "Andreas", "anabel"]
    assert await index.names.owners_containing("users", "nna", 9) == ["hannah"]
    assert await index.names.owners_containing("users", "eas", 9) == ["Andreas"]
    for absent in ("ndrax", "a%a", "a_a", "nn\\"):
        assert await index.names.owners_containing("users", absent, 9) == []


async def test_a_short_name_is_corrected_beside_many_long_ones(sql: Sql) -> None:
    index = SearchIndex(sql)
    names = {f"mria.number.{n}": ["mria number"] for n in range(60)}
    names |= {"castro": ["mira castro", "mira", "castro"], "mira": ["mira"]}
    weights = {"castro": 9.0}
    documents = {key: SearchDocument([key], names=each, weight=weights.get(key, 0)) for key, each in names.items()}
    await index.write("users", documents)
    assert [name.key for name in await index.names.similar("users", "mria")] == ["mira", "castro"]


async def test_names_that_contain_a_text_are_read_by_their_trigrams_alone(sql: Sql) -> None:
    if sql.dialect != "sqlite":
        return  # its plan depends on how many names there are
    values = {"kind": "users", "trigrams": ["nna"], "pattern": "%nna%", "count": 9}
    compiled = names_module._OWNERS_CONTAINING.compile(dialect=sqlite.dialect(paramstyle="named"))
    expanded = compiled.construct_expanded_state(values)
    plan = await sql.fetch_all(sql_text(f"EXPLAIN QUERY PLAN {expanded.statement}"), **expanded.parameters)
    assert any("search_name" in row.detail and "name=?" in row.detail for row in plan)


@pytest.mark.parametrize(
    ("a", "b", "expected"), [("", "", 0), ("ana", "ana", 0), ("ana", "anna", 1), ("ab", "ba", 1), ("abcd", "wxyz", 3)]
)
def test_distance_counts_up_to_the_limit(a: str, b: str, expected: int) -> None:
    assert distance(a, b, 2) == expected


async def test_the_newest_matches_come_first_however_few_documents_are_searched(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = (("\ue030", 1, 2), ("\ue031", 2, 2), ("\ue032", 3, 3))
    monkeypatch.setattr(match_expression, "WINDOWS", windows)
    index = SearchIndex(sql)
    for n in range(1, 31):  # in their order: a newer document has a higher id
        await index.write("posts", {str(n): document("apple" + (" pear" if n < 5 else ""))})
    for searched in (index, await index_with_counted_words(sql)):
        for count in (1, 3, 5, 20, 30):
            apples = [match.key for match in await searched.find("posts", parse_query('"apple"'), count, newest=True)]
            assert sorted(map(int, apples)) == list(range(31 - count, 31)), "each once, across the windows"
        pears = [match.key for match in await searched.find("posts", parse_query('"apple" "pear"'), 100, newest=True)]
        assert sorted(pears) == ["1", "2", "3", "4"], "none is among the newest documents"


async def test_a_rare_word_is_found_with_the_beginning_of_a_frequent_one(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "FREQUENT_BEGINNING", 19)
    monkeypatch.setattr(index_module, "MAX_RARE", 15)
    monkeypatch.setattr(index_module, "MAX_RARE_READ", 5)
    index = SearchIndex(sql)

    async def newest_two() -> set[str]:
        return {match.key for match in await index.find("posts", parse_query("app pear"), 2, newest=True)}

    for n in range(20):  # in their order: a newer document has a higher id
        words = "apples pears" if n < 4 else "pears" if n == 4 else "apples figs"
        await index.write("posts", {str(n): document(words)})
    index = await index_with_counted_words(sql)
    assert await found(index, "app pear") == {"0", "1", "2", "3"}
    assert await found(index, "app pear -apples") == set()
    assert await newest_two() == {"2", "3"}
    for n in range(20, 26):  # now it is frequent, and was not counted again
        await index.write("posts", {str(n): document("apples pears")})
    assert await found(index, "app pear") == {"0", "1", "2", "3", *map(str, range(20, 26))}
    assert await newest_two() == {"24", "25"}


async def test_finding_the_words_of_a_batch_lets_other_work_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "TURN_SECONDS", 0.0)
    turns, documents = 0, {f"key{n}": document(f"text {n}") for n in range(20)}

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(other_work())
    rows = await index_module.index_rows("posts", documents)
    other.cancel()
    assert list(rows) == list(documents)
    assert turns == len(documents)


async def test_a_weight_is_never_given_to_a_document_that_took_the_place_of_another(
    sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, fetch_all = SearchIndex(sql), sql.fetch_all
    await index.write("posts", {"old": document("a", weight=1), "rest": document("b", weight=2)})

    async def fetch_then_replace(*args: Any, **values: Any) -> Any:
        found = await fetch_all(*args, **values)
        monkeypatch.setattr(sql, "fetch_all", fetch_all)
        await index.write("posts", {"rest": None})  # the last: SQLite gives its id to the next document
        await index.write("posts", {"new": document("c", weight=3)})
        return found

    monkeypatch.setattr(sql, "fetch_all", fetch_then_replace)
    await index.reweigh("posts", {"old": 10, "rest": 20})
    weights = {key: row.weight for key, row in (await index.stored("posts", ["old", "rest", "new"])).items()}
    assert weights == {"old": 10, "new": 3}
