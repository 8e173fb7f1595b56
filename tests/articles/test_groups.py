"""Groups: who is in them, and lists that are computed once a minute for all their readers."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from plaza.articles.group_rankings import Cuts
from plaza.articles.keys import (
    ARTICLE_GROUPS,
    ARTICLES_BY_SCORE,
    ARTICLES_BY_TIME,
    CUTS,
    GROUP,
    GROUP_BUILDER,
    GROUP_BUILDING,
    GROUPS,
)
from plaza.articles.lists import Lists
from plaza.articles.model import MOST_GROUPS, ArticlesQuery, Order, TooManyGroups
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import Forbidden, NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page, Snapshots
from plaza.core.valkey import Valkey
from tests.articles.conftest import Post, person
from tests.round_trips import count_round_trips
from tests.servers import Cluster, Server
from tests.timeouts import connect_for_test

ORDERS: list[Order] = ["score", "time", "hot", "best", "controversial"]


async def listed(lists: Lists, group: str, order: Order = "score") -> list[int]:
    page = await lists.of_group(None, group, ArticlesQuery(order=order, limit=100))
    return [article.id for article in page.articles]


def news_keys() -> tuple[str, str, str]:
    """Of the group `news`, by score: the list, the list being built, and its builder."""
    return CUTS["score"]("news"), GROUP_BUILDING("score", "news"), GROUP_BUILDER("score", "news")


async def expire(redis_client: Any, group: str) -> None:
    """What a minute does."""
    for cut in CUTS.values():
        await redis_client.delete(cut(group))


async def calls(valkey: Valkey, command: str) -> int:
    """How often a command has run, on all nodes."""
    total = 0
    for node in valkey.primaries():
        info = await node.call("INFO", "commandstats")
        for line in info.splitlines():
            if line.startswith(f"cmdstat_{command}:"):
                total += int(line.split("calls=")[1].split(",")[0])
    return total


async def test_an_article_is_put_in_a_group_and_taken_out(
    articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    article = await post()
    assert (await articles.group(ana, article.id, "news", "in")).groups == ["news"]
    assert (await articles.group(ana, article.id, "go", "in")).groups == ["go", "news"]
    assert (await articles.group(ana, article.id, "go", "in")).groups == ["go", "news"]
    assert await redis_client.smembers(GROUP("news")) == {f"article:{article.id}"}
    assert (await articles.read(None, article.id)).groups == ["go", "news"]
    assert (await articles.group(ana, article.id, "news", "out")).groups == ["go"]
    assert (await articles.group(ana, article.id, "news", "out")).groups == ["go"]
    assert await redis_client.exists(GROUP("news")) == 0
    assert await redis_client.zrange(GROUPS(), 0, -1) == ["go"]


async def test_grouping_is_for_the_author_and_admins(
    articles: Articles, post: Post, ben: Actor, admin: Actor, redis_client: Any
) -> None:
    article = await post()
    with pytest.raises(Forbidden):
        await articles.group(ben, article.id, "news", "in")
    with pytest.raises(NotFound):
        await articles.group(ben, 92617, "news", "in")
    assert await redis_client.exists(GROUP("news")) == 0
    assert await redis_client.exists(ARTICLE_GROUPS(92617)) == 0
    assert (await articles.group(admin, article.id, "news", "in")).groups == ["news"]


async def test_an_article_is_in_a_bounded_number_of_groups(articles: Articles, post: Post, ana: Actor) -> None:
    article = await post(ana, *(f"group{i}" for i in range(MOST_GROUPS)))
    with pytest.raises(TooManyGroups):
        await articles.group(ana, article.id, "one-more", "in")
    await articles.group(ana, article.id, "group0", "in")


async def test_grouping_is_one_round_trip_on_one_server_and_four_in_sequence_on_a_cluster(
    articles: Articles, post: Post, ana: Actor
) -> None:
    article = await post()
    rounds = await count_round_trips(articles.valkey, articles.group(ana, article.id, "news", "in"))
    assert rounds == (4 if articles.valkey.clustered else 1)


async def test_groups_are_listed_with_their_sizes_and_empty_ones_vanish(
    articles: Articles, lists: Lists, post: Post, ana: Actor
) -> None:
    made = [await post(ana, "news", *(["go"] if i % 2 else [])) for i in range(5)]
    page = await lists.groups(Page())
    assert [(group.id, group.size) for group in page.groups] == [("news", 5), ("go", 2)]
    await asyncio.gather(*(articles.group(ana, article.id, "go", "out") for article in made))
    assert [(group.id, group.size) for group in (await lists.groups(Page())).groups] == [("news", 5)]


async def test_groups_come_in_pages(lists: Lists, post: Post, ana: Actor) -> None:
    await post(ana, "a", "b", "c", "d", "e")
    first = await lists.groups(Page(limit=3))
    second = await lists.groups(Page(limit=3, cursor=first.pagination.next_cursor))
    assert sorted(group.id for group in first.groups + second.groups) == ["a", "b", "c", "d", "e"]
    assert second.pagination.next_cursor is None


async def test_a_groups_lists_are_cut_from_the_whole_and_live_for_a_minute(
    articles: Articles, lists: Lists, post: Post, ana: Actor, clock: ManualClock, redis_client: Any
) -> None:
    made = []
    for i in range(8):
        made.append(await post(ana, *(["news"] if i % 2 else ["go"])))
        clock.advance(seconds=100)
    await articles.vote(person("ben"), made[1].id, "up")
    ours = {f"article:{article.id}" for article in made[1::2]}
    assert await listed(lists, "news", "time") == [made[i].id for i in (7, 5, 3, 1)]
    assert await listed(lists, "news", "score") == [made[i].id for i in (7, 1, 5, 3)]
    wholes: list[tuple[Order, str]] = [("score", ARTICLES_BY_SCORE()), ("time", ARTICLES_BY_TIME())]
    for order, whole in wholes:
        cut = dict(await redis_client.zrange(CUTS[order]("news"), 0, -1, withscores=True))
        everything = dict(await redis_client.zrange(whole, 0, -1, withscores=True))
        assert cut == {member: everything[member] for member in ours}
        assert 50_000 < await redis_client.pttl(CUTS[order]("news")) <= 60_000
        assert await redis_client.exists(GROUP_BUILDING(order, "news")) == 0
        assert await redis_client.exists(GROUP_BUILDER(order, "news")) == 0
    others: list[Order] = ["hot", "best", "controversial"]
    for order in others:
        assert {f"article:{id}" for id in await listed(lists, "news", order)} == ours


async def test_a_list_about_to_expire_is_built_anew_for_who_asks_for_it(
    articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    first, second = await post(ana, "news"), await post(ana, "news")
    cuts, list = Cuts(articles.functions, step=1, at_once=0), CUTS["score"]("news")
    await redis_client.zadd(list, {"article:999": 1})
    for left in (500, None):  # one without an expiry is nobody's we know
        if left is None:
            await redis_client.persist(list)
        else:
            await redis_client.pexpire(list, left)
        await cuts.ensure("score", "news")
        assert await redis_client.zrange(list, 0, -1) == [f"article:{first.id}", f"article:{second.id}"]
        assert 50_000 < await redis_client.pttl(list) <= 60_000


async def test_a_vote_shows_in_the_groups_list_when_its_minute_is_over(
    articles: Articles, lists: Lists, post: Post, ana: Actor, redis_client: Any
) -> None:
    first, second = await post(ana, "news"), await post(ana, "news")
    assert await listed(lists, "news") == [second.id, first.id]
    await articles.vote(person("ben"), first.id, "up")
    assert await listed(lists, "news") == [second.id, first.id]
    await expire(redis_client, "news")
    assert await listed(lists, "news") == [first.id, second.id]


async def test_coming_and_going_shows_at_once_also_in_a_list_that_is_kept(
    articles: Articles, lists: Lists, post: Post, ana: Actor, redis_client: Any
) -> None:
    first = await post(ana, "news")
    for order in ORDERS:
        assert await listed(lists, "news", order) == [first.id]
    second = await post(ana, "news")
    for order in ORDERS:
        assert set(await listed(lists, "news", order)) == {first.id, second.id}
    await articles.group(ana, first.id, "news", "out")
    for order in ORDERS:
        assert await listed(lists, "news", order) == [second.id]
        assert await redis_client.zrange(CUTS[order]("news"), 0, -1) == [f"article:{second.id}"]


async def test_a_group_nobody_has_is_an_empty_list(lists: Lists, redis_client: Any) -> None:
    for order in ORDERS:
        assert await listed(lists, "nobody", order) == []
        assert await redis_client.exists(CUTS[order]("nobody")) == 0


async def test_500_readers_of_an_expired_list_cause_one_computation(
    place: Server | Cluster, lists: Lists, post: Post, ana: Actor, clock: ManualClock, valkey: Valkey, redis_client: Any
) -> None:
    for _ in range(200):
        clock.advance(seconds=1)
        article = await post(ana, "news")
    newest = (article.id, article.id - 1, article.id - 2)
    others: list[Lists] = []
    connections = [await connect_for_test(place.url) for _ in range(4)]  # as other processes would
    for connection in connections:
        functions = Functions(connection, [])
        functions.built = lists._functions.built
        articles = Articles(functions, clock, 7)
        others.append(Lists(articles, Cuts(functions, step=10, at_once=0), Snapshots(connection, clock)))
    before = await calls(valkey, "sscan")
    await listed(others[0], "news")
    alone = await calls(valkey, "sscan") - before
    assert alone > 1  # several steps, so that others come in between
    orders: list[Order] = ["score", "time"]
    for order in orders:
        await expire(redis_client, "news")
        before = await calls(valkey, "sscan")
        query = ArticlesQuery(order=order, limit=3)
        pages = await asyncio.gather(*(others[i % 4].of_group(None, "news", query) for i in range(500)))
        assert {tuple(article.id for article in page.articles) for page in pages} == {newest}
        assert await calls(valkey, "sscan") == before + alone
    for connection in connections:
        await connection.close()


async def test_a_builder_that_dies_is_replaced(lists: Lists, post: Post, ana: Actor, redis_client: Any) -> None:
    made = [await post(ana, "news") for _ in range(2)]
    await redis_client.set(GROUP_BUILDER("score", "news"), "dead", px=200)
    await redis_client.zadd(GROUP_BUILDING("score", "news"), {"article:999": 1.0})
    await Cuts(lists._functions, step=1, at_once=0).ensure("score", "news")
    assert await redis_client.zrange(CUTS["score"]("news"), 0, -1) == [f"article:{article.id}" for article in made]


async def fold(functions: Functions, token: str, *ids: int) -> Any:
    """One step of building, of a builder that has scanned these."""
    keys = [GROUP_BUILDING("score", "news"), GROUP_BUILDER("score", "news"), GROUP("news")]
    if functions.valkey.clustered:
        pairs = [part for id in ids for part in (f"article:{id}", "1")]
        return await functions.run("articles_fold", keys, token, *pairs)
    return await functions.run("articles_step", [*keys, ARTICLES_BY_SCORE()], token, "0", 500)


async def test_a_builder_that_stalled_publishes_nothing(
    functions: Functions, post: Post, ana: Actor, redis_client: Any
) -> None:
    article = await post(ana, "news")
    list, building, builder = news_keys()
    keys = [list, building, builder, GROUP("news")]
    assert await functions.run("articles_begin", keys, "slow", 500) == "yours"
    await redis_client.delete(builder)  # its lease ran out
    assert await functions.run("articles_begin", keys, "quick", 500) == "yours"
    assert not await fold(functions, "slow", article.id)
    assert await functions.run("articles_publish", [list, building, builder], "slow", 60_000) == 0
    assert await redis_client.exists(list) == 0
    assert await fold(functions, "quick", article.id)
    assert await functions.run("articles_publish", [list, building, builder], "quick", 60_000) == 1
    assert await redis_client.zrange(list, 0, -1) == [f"article:{article.id}"]


async def test_a_builder_keeps_its_lease_by_going_on(
    functions: Functions, post: Post, ana: Actor, redis_client: Any
) -> None:
    article = await post(ana, "news")
    list, building, builder = news_keys()
    assert await functions.run("articles_begin", [list, building, builder, GROUP("news")], "me", 500) == "yours"
    await redis_client.pexpire(builder, 2500)
    assert await fold(functions, "me", article.id)
    assert 2500 < await redis_client.pttl(builder) <= 5000


async def test_what_leaves_while_a_list_is_built_is_not_in_it(
    functions: Functions, articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    kept, early, late = [await post(ana, "news") for _ in range(3)]
    list, building, builder = news_keys()
    keys = [list, building, builder, GROUP("news")]
    assert await functions.run("articles_begin", keys, "me", 500) == "yours"
    await articles.delete(ana, early.id)  # on a cluster it may have been scanned before
    assert await fold(functions, "me", early.id, late.id, kept.id)
    await articles.delete(ana, late.id)  # folded before
    assert await functions.run("articles_publish", [list, building, builder], "me", 60_000) == 1
    assert await redis_client.zrange(list, 0, -1) == [f"article:{kept.id}"]


async def test_what_joins_while_a_list_is_built_is_in_it_also_behind_the_scan(
    functions: Functions, post: Post, ana: Actor, redis_client: Any
) -> None:
    early = await post(ana, "news")
    list, building, builder = news_keys()
    keys = [list, building, builder, GROUP("news")]
    assert await functions.run("articles_begin", keys, "me", 500) == "yours"
    late = await post(ana, "news")  # on a cluster the early one was scanned, and is not in the list being built yet
    assert 50_000 < await redis_client.pttl(building) <= 60_000
    assert await fold(functions, "me", early.id)
    assert await functions.run("articles_publish", [list, building, builder], "me", 60_000) == 1
    assert set(await redis_client.zrange(list, 0, -1)) == {f"article:{early.id}", f"article:{late.id}"}


async def test_a_large_group_is_built_in_steps(
    lists: Lists, articles: Articles, valkey: Valkey, redis_client: Any
) -> None:
    dice = random.Random(2)
    members = {f"article:{i}": dice.random() for i in range(1, 3001)}
    await redis_client.zadd(ARTICLES_BY_SCORE(), members)
    chosen = set(dice.sample(sorted(members), 1200))
    await redis_client.sadd(GROUP("news"), *chosen)
    before = await calls(valkey, "sscan")
    await Cuts(articles.functions).ensure("score", "news")
    assert await calls(valkey, "sscan") - before > 3  # short ones, with the size that serves
    cut = dict(await redis_client.zrange(CUTS["score"]("news"), 0, -1, withscores=True))
    assert cut == {member: members[member] for member in chosen}


async def test_a_list_lives_for_a_minute_from_when_its_building_began(
    articles: Articles, valkey: Valkey, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"article:{i}": float(i) for i in range(1, 301)}
    await redis_client.zadd(ARTICLES_BY_SCORE(), members)
    await redis_client.sadd(GROUP("news"), *members)
    call, times = articles.functions.run, list[tuple[float, float]]()

    async def timed(verb: str, *args: Any) -> Any:
        began = time.time()
        await asyncio.sleep(0.02)  # so that building takes a while, on a quick machine too
        answer = await call(verb, *args)
        times.append((began * 1000, time.time() * 1000))
        return answer

    monkeypatch.setattr(articles.functions, "run", timed)
    await Cuts(articles.functions, step=1, at_once=0).ensure("score", "news")
    assert await redis_client.zcard(CUTS["score"]("news")) == 300
    _, *steps, (_, published) = times
    took_ms = steps[-1][1] - steps[0][0]
    assert await redis_client.pexpiretime(CUTS["score"]("news")) <= published + 60_000 - took_ms + 2


async def test_all_readers_hear_of_it_when_a_list_cannot_be_built(
    articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    await post(ana, "news")
    await redis_client.delete(ARTICLES_BY_SCORE())
    await redis_client.set(ARTICLES_BY_SCORE(), "no zset")
    cuts = Cuts(articles.functions)
    found = await asyncio.gather(*(cuts.ensure("score", "news") for _ in range(5)), return_exceptions=True)
    assert all("WRONGTYPE" in str(error) for error in found)
    await redis_client.delete(ARTICLES_BY_SCORE())


async def test_pages_of_a_group_neither_repeat_nor_skip(
    articles: Articles, lists: Lists, post: Post, ana: Actor, clock: ManualClock, redis_client: Any
) -> None:
    for i in range(60):
        clock.advance(seconds=i % 2)
        await post(ana, "news")
    for order in ("score", "time"):
        throughout = set(await listed(lists, "news", order))
        seen: list[int] = []
        cursor = None
        while True:
            page = await lists.of_group(None, "news", ArticlesQuery(order=order, cursor=cursor))
            seen += [article.id for article in page.articles]
            cursor = page.pagination.next_cursor
            if cursor is None:
                break
            clock.advance(seconds=1)
            await asyncio.gather(*(post(ana, "news") for _ in range(20)))
            await asyncio.gather(*(articles.vote(person("ben"), id, "up") for id in range(1, 30)))
            await expire(redis_client, "news")
        assert len(seen) == len(set(seen))
        assert throughout <= set(seen)


async def test_a_page_of_a_kept_list_costs_two_round_trips(lists: Lists, post: Post, ana: Actor) -> None:
    for _ in range(30):
        await post(ana, "news")
    for order in ORDERS:
        await lists.of_group(None, "news", ArticlesQuery(order=order))  # the list and the snapshot are kept by now
        work = lists.of_group(None, "news", ArticlesQuery(order=order))
        assert await count_round_trips(lists._valkey, work) == 2
