"""Posting assigns an id, writes the documented keys, and accepts a link once a day."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_LINK,
    ARTICLES_BY_SCORE,
    ARTICLES_BY_TIME,
    ARTICLES_LAST,
    COUNTER,
    GROUP,
    LINK_SECONDS,
)
from plaza.articles.model import Article, DuplicateLink, NewArticle, clean_link, clean_title, link_digest
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import Invalid, Unavailable
from tests.articles.conftest import Post, user
from tests.failovers import lossy_failover
from tests.http_servers import all_of_plaza
from tests.round_trips import count_round_trips
from tests.servers import running_cluster
from tests.waiting import eventually

LINK = "https://example.com/a?b=c"

# On one server the id, the link and the article are written in one step.
on_a_cluster = pytest.mark.parametrize("place", ["cluster"], indirect=True)


async def test_an_article_is_written_as_documented(
    articles: Articles, ana: Actor, clock: ManualClock, redis_client: Any
) -> None:
    clock.set(1_723_000_000_123)
    article = await articles.post(ana, NewArticle("  A title ", LINK, ["news", "go", "news"]), "op")
    assert article == Article(1, "A title", LINK, "user:ana", 1723000000.123, 1, 1723000432.123, ["go", "news"], "up")
    assert await redis_client.get(ARTICLES_LAST()) == "1"
    assert await redis_client.hgetall(ARTICLE(1)) == {
        "title": "A title",
        "link": LINK,
        "author": "user:ana",
        "time": "1723000000.123",
        "votes": "1",
    }
    assert await redis_client.zrange(ARTICLES_BY_TIME(), 0, -1, withscores=True) == [("article:1", 1723000000.123)]
    assert await redis_client.zrange(ARTICLES_BY_SCORE(), 0, -1, withscores=True) == [("article:1", 1723000432.123)]
    assert await redis_client.smembers(GROUP("news")) == {"article:1"}
    assert await articles.read(ana, 1) == article


async def test_ids_are_unique_and_rise_and_have_no_gaps_on_one_server(articles: Articles, redis_client: Any) -> None:
    users = [user(f"user{i}") for i in range(10)]
    numbers = itertools.count()
    seen: list[list[int]] = []

    async def poster(actor: Actor) -> None:
        mine: list[int] = []
        seen.append(mine)
        for number in itertools.islice(numbers, 20):
            new = NewArticle("A title", f"https://example.com/{number}")
            mine.append((await articles.post(actor, new, f"op{number}")).id)

    await asyncio.gather(*map(poster, users))
    assert all(mine == sorted(mine) for mine in seen)
    ids = sorted(itertools.chain(*seen))
    assert len(set(ids)) == 200
    assert await redis_client.get(ARTICLES_LAST()) == str(ids[-1])
    if not articles.valkey.clustered:
        assert ids == list(range(1, 201))


async def test_the_same_link_within_a_day_is_rejected_with_the_first_articles_id(
    articles: Articles, ana: Actor, ben: Actor, clock: ManualClock, redis_client: Any
) -> None:
    first = await articles.post(ana, NewArticle("First", LINK), "op1")
    assert LINK_SECONDS - 60 <= await redis_client.ttl(ARTICLE_LINK(COUNTER, link_digest(LINK))) <= LINK_SECONDS
    clock.advance(days=1, seconds=-1)
    for link in (LINK, f" {LINK}#part", "HTTPS://EXAMPLE.com:443/a?b=c"):
        with pytest.raises(DuplicateLink) as caught:
            await articles.post(ben, NewArticle("Second", link), "op2")
        assert caught.value.extra == {"id": first.id}
    assert await redis_client.get(ARTICLES_LAST()) == "1"
    clock.advance(seconds=1)
    assert (await articles.post(ben, NewArticle("Second", LINK), "op3")).id == 2


async def test_a_link_posted_concurrently_gives_one_article(articles: Articles, redis_client: Any) -> None:
    async def post(i: int) -> int:
        try:
            return (await articles.post(user(f"user{i}"), NewArticle("A title", LINK), f"op{i}")).id
        except DuplicateLink as error:
            return int(error.extra["id"])

    assert set(await asyncio.gather(*map(post, range(50)))) == {1}
    assert await redis_client.zcard(ARTICLES_BY_TIME()) == 1
    assert await redis_client.get(ARTICLES_LAST()) == "1"


async def test_a_retried_operation_gives_the_same_article(
    articles: Articles, ana: Actor, ben: Actor, clock: ManualClock, redis_client: Any
) -> None:
    first = await articles.post(ana, NewArticle("A title", LINK, ["news"]), "op")
    await articles.vote(ben, first.id, "up")
    clock.advance(seconds=30)
    again = await articles.post(ana, NewArticle("A title", LINK, ["news"]), "op")
    assert again.id == first.id
    assert again.time == first.time
    assert again.votes == 2
    assert await redis_client.zcard(ARTICLES_BY_TIME()) == 1


@on_a_cluster
async def test_a_link_claimed_by_a_process_that_died_can_be_posted_again(
    articles: Articles, ana: Actor, clock: ManualClock
) -> None:
    keys = [ARTICLES_LAST(), ARTICLE_LINK(COUNTER, link_digest(LINK))]
    await articles.functions.run("articles_claim", keys, f"{clock.now_s():.3f}", "died", "")
    with pytest.raises(DuplicateLink):
        await articles.post(ana, NewArticle("A title", LINK), "op")
    clock.advance(seconds=11)
    assert (await articles.post(ana, NewArticle("A title", LINK), "op")).id == 2
    with pytest.raises(DuplicateLink):
        await articles.post(ana, NewArticle("A title", LINK), "another")


async def test_a_post_is_one_round_trip_on_one_server_and_five_on_a_cluster(articles: Articles, post: Post) -> None:
    rounds = await count_round_trips(articles.valkey, post(user("ben"), "news", "go"))
    # The id, the article, its rankings and groups, the sizes of the groups, settling.
    assert rounds == (5 if articles.valkey.clustered else 1)


@pytest.mark.parametrize(
    "title",
    ["", "   ", "x" * 301, "two\nlines", "two\u2028lines", "bell \x07", "half \ud800", "\u200b", "\ufeff \u200d"],
    ids=repr,
)
def test_an_unprintable_title_is_rejected(title: str) -> None:
    with pytest.raises(Invalid) as caught:
        clean_title(title)
    assert caught.value.extra == {"field": "title"}


@pytest.mark.parametrize("title", ["👨‍👩‍👧 at home", "日本語　タイトル", "a\u00a0b", "<b>&amp;", "می‌خواهم"])
def test_a_title_in_any_script_is_accepted(title: str) -> None:
    assert clean_title(title) == title


def test_a_title_is_trimmed_before_its_length_is_checked() -> None:
    assert clean_title(" \t" + "ü" * 300 + "\n") == "ü" * 300


@pytest.mark.parametrize(
    "link",
    [
        "",
        "example.com",
        "ftp://example.com/",
        "javascript:alert(1)",
        "//example.com/",
        "https://",
        "https:///path",
        "https://../",
        "https://a..b/",
        "https://<script>/",
        "https://[abc]/",
        "https://[v1.a]/",
        "https://[fe80::1%25eth0]/",
        "https://[::1]example.com/",
        "https://example.com[::1]/",
        "https://exa mple.com/",
        "https://example.com/a b",
        "https://example.com/\nHost: x",
        "https://user:secret@example.com/",
        "https://example.com:99999/",
        "https://example.com:http/",
        "https://[::1/",
        "https://example.com/\ud800",
        "https://example.com\\@evil.example/",
        "https://example.com/" + "x" * 2000,
    ],
    ids=repr,
)
def test_a_link_that_is_not_a_web_address_is_rejected(link: str) -> None:
    with pytest.raises(Invalid) as caught:
        clean_link(link)
    assert caught.value.extra == {"field": "link"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("http://link.com", "http://link.com"),
        (" HTTP://Link.COM:80/Path?Q=1#Part ", "http://link.com/Path?Q=1#Part"),
        ("https://link.com:8443/", "https://link.com:8443/"),
        ("https://link.com:/", "https://link.com/"),
        ("http://[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
        ("https://bücher.example/ä", "https://bücher.example/ä"),
        ("https://उदाहरण.example/", "https://उदाहरण.example/"),
        ("https://ไทยแลนด์.example./", "https://ไทยแลนด์.example./"),
    ],
)
def test_a_link_is_normalized(given: str, stored: str) -> None:
    assert clean_link(given) == stored
    assert clean_link(stored) == stored


def test_links_to_the_same_page_have_the_same_digest() -> None:
    assert link_digest("http://link.com") == link_digest("http://link.com/") == link_digest("http://link.com#part")
    assert link_digest("http://link.com?a=1") == link_digest("http://link.com/?a=1#/part?")
    assert link_digest("http://link.com/a") != link_digest("http://link.com/A")
    assert link_digest("http://link.com/") != link_digest("https://link.com/")


@pytest.mark.parametrize("value", ["", "abc", "1.5", "-7", "9" * 40, "nan"])
async def test_a_counter_damaged_by_another_service_is_repaired(
    articles: Articles, post: Post, redis_client: Any, value: str
) -> None:
    before = {(await post()).id for _ in range(3)}
    await redis_client.set(ARTICLES_LAST(), value)
    made = await post()
    assert made.id > max(before)
    assert int(await redis_client.get(ARTICLES_LAST())) == made.id


async def test_a_counter_set_back_by_another_service_is_repaired(
    articles: Articles, post: Post, redis_client: Any
) -> None:
    before = {(await post()).id for _ in range(3)}
    await redis_client.set(ARTICLES_LAST(), "0")
    made = await post()
    assert made.id > max(before)


@on_a_cluster
async def test_an_id_that_a_failover_gives_again_never_hands_out_another_article(
    articles: Articles, ana: Actor, redis_client: Any
) -> None:
    """The counter's node loses its last ids; many post at once before anyone repairs it."""
    bob = user("bob")
    first = [await articles.post(ana, NewArticle(f"Old {n}", f"{LINK}/{n}"), f"old-{n}") for n in range(5)]
    await redis_client.set(ARTICLES_LAST(), 1)
    new = [NewArticle(f"New {n}", f"{LINK}/new/{n}") for n in range(8)]
    made = await asyncio.gather(*(articles.post(bob, each, f"new-{n}") for n, each in enumerate(new)))
    assert [(each.title, each.author) for each in made] == [(each.title, "user:bob") for each in new]
    assert len({each.id for each in (*first, *made)}) == 13
    assert min(each.id for each in made) > max(each.id for each in first)
    for each in (*first, *made):
        assert (await articles.read(ana, each.id)).title == each.title
    again = await articles.post(bob, new[0], "new-0")
    assert again.id == made[0].id, "the claim of the link is that of the new id"
    with pytest.raises(DuplicateLink):
        await articles.post(ana, new[0], "another")


async def test_no_id_is_given_twice_although_a_failover_lost_it_and_its_article(tmp_path: Path) -> None:
    ana, bob = user("ana"), user("bob")
    with running_cluster(2, 1) as cluster:
        async with all_of_plaza(cluster, tmp_path) as plaza:
            articles = plaza.get(Articles)

            async def post(actor: Actor, name: str) -> int:
                return (await articles.post(actor, NewArticle(name, f"{LINK}/{name}"), name)).id

            async def post_after_failover() -> int:
                with contextlib.suppress(Unavailable):
                    return await post(bob, "new")
                return 0

            first = await post(ana, "first")
            async with lossy_failover(cluster):
                lost = [await post(ana, f"lost-{n}") for n in range(8)]
            assert await eventually(post_after_failover) > lost[-1] > first
            assert len([article for article in await articles.read_many(None, lost) if article is None]) > 0


@on_a_cluster
async def test_after_a_failover_a_new_article_is_not_taken_for_the_authors_old_one(
    articles: Articles, ana: Actor, redis_client: Any
) -> None:
    """The counter's node loses the last id, and with it the claim of the link."""

    async def lose_last_id() -> None:
        await redis_client.set(ARTICLES_LAST(), 0)
        await redis_client.delete(ARTICLE_LINK(COUNTER, link_digest(LINK)))

    first = await articles.post(ana, NewArticle("Old", LINK), "old")
    await lose_last_id()
    assert (await articles.post(ana, NewArticle("Old", LINK), "old")).id == first.id, "the same operation again"
    await lose_last_id()
    second = await articles.post(ana, NewArticle("New", LINK), "new")
    assert (second.id, second.title) == (first.id + 1, "New")
    assert (await articles.read(ana, first.id)).title == "Old"
