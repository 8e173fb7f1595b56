"""Groups: their members, and rankings that are built once a minute for all readers."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from plaza.articles.group_rankings import GroupRankings
from plaza.articles.keys import (
    ARTICLE_GROUPS,
    ARTICLES_BY_SCORE,
    ARTICLES_BY_TIME,
    GROUP,
    GROUP_BUILDER,
    GROUP_BUILDING,
    GROUP_RANKINGS,
    GROUPS,
)
from plaza.articles.lists import ArticleLists
from plaza.articles.model import MAX_GROUPS, ArticlesQuery, Order, TooManyGroups
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import Forbidden, NotFound
from plaza.core.functions import Functions
from plaza.core.paging import Page, Snapshots
from plaza.core.valkey import Valkey
from tests.articles.conftest import Post, user
from tests.round_trips import count_round_trips
from tests.servers import Cluster, Server
from tests.timeouts import connect_for_test

ORDERS: list[Order] = ["score", "time", "hot", "best", "top", "controversial"]


async def listed_ids(lists: ArticleLists, group: str, order: Order = "score") -> list[int]:
    page = await lists.list_group(None, group, ArticlesQuery(order=order, limit=100))
    return [article.id for article in page.articles]


def news_keys() -> tuple[str, str, str]:
    """The keys of the group `news` by score: the ranking, the unfinished ranking and the builder."""
    return GROUP_RANKINGS["score"]("news"), GROUP_BUILDING("score", "news"), GROUP_BUILDER("score", "news")


async def expire(redis_client: Any, group: str) -> None:
    """Delete a group's rankings, as their expiry would."""
    for ranking in GROUP_RANKINGS.values():
        await redis_client.delete(ranking(group))


async def calls(valkey: Valkey, command: str) -> int:
    """The number of calls of a command, on all nodes."""
    total = 0
    for node in valkey.primaries():
        info = await node.call("INFO", "commandstats")
        for line in info.splitlines():
            if line.startswith(f"cmdstat_{command}:"):
                total += int(line.split("calls=")[1].split(",")[0])
    return total


async def test_an_article_is_added_to_a_group_and_removed(
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


async def test_only_the_author_and_admins_can_change_groups(
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


async def test_the_number_of_groups_of_an_article_is_limited(articles: Articles, post: Post, ana: Actor) -> None:
    article = await post(ana, *(f"group{i}" for i in range(MAX_GROUPS)))
    with pytest.raises(TooManyGroups):
        await articles.group(ana, article.id, "one-more", "in")
    await articles.group(ana, article.id, "group0", "in")


async def test_grouping_is_one_round_trip_on_one_server_and_four_on_a_cluster(
    articles: Articles, post: Post, ana: Actor
) -> None:
    article = await post()
    rounds = await count_round_trips(articles.valkey, articles.group(ana, article.id, "news", "in"))
    assert rounds == (4 if articles.valkey.clustered else 1)


async def test_groups_are_listed_with_their_sizes_and_empty_ones_are_not(
    articles: Articles, lists: ArticleLists, post: Post, ana: Actor
) -> None:
    made = [await post(ana, "news", *(["go"] if i % 2 else [])) for i in range(5)]
    page = await lists.list_groups(Page())
    assert [(group.id, group.size) for group in page.groups] == [("news", 5), ("go", 2)]
    await asyncio.gather(*(articles.group(ana, article.id, "go", "out") for article in made))
    assert [(group.id, group.size) for group in (await lists.list_groups(Page())).groups] == [("news", 5)]


async def test_groups_come_in_pages(lists: ArticleLists, post: Post, ana: Actor) -> None:
    await post(ana, "a", "b", "c", "d", "e")
    first = await lists.list_groups(Page(limit=3))
    second = await lists.list_groups(Page(limit=3, cursor=first.pagination.next_cursor))
    assert sorted(group.id for group in first.groups + second.groups) == ["a", "b", "c", "d", "e"]
    assert second.pagination.next_cursor is None


async def test_a_groups_rankings_have_the_scores_of_all_articles_and_live_for_a_minute(
    articles: Articles, lists: ArticleLists, post: Post, ana: Actor, clock: ManualClock, redis_client: Any
) -> None:
    made = []
    for i in range(8):
        made.append(await post(ana, *(["news"] if i % 2 else ["go"])))
        clock.advance(seconds=100)
    await articles.vote(user("ben"), made[1].id, "up")
    for article in made[1::2]:
        await articles.vote(user("critic"), article.id, "down")
    members = {f"article:{article.id}" for article in made[1::2]}
    assert await listed_ids(lists, "news", "time") == [made[i].id for i in (7, 5, 3, 1)]
    assert await listed_ids(lists, "news", "score") == [made[i].id for i in (7, 1, 5, 3)]
    rankings: list[tuple[Order, str]] = [("score", ARTICLES_BY_SCORE()), ("time", ARTICLES_BY_TIME())]
    for order, ranking in rankings:
        group_ranking = dict(await redis_client.zrange(GROUP_RANKINGS[order]("news"), 0, -1, withscores=True))
        all_scores = dict(await redis_client.zrange(ranking, 0, -1, withscores=True))
        assert group_ranking == {member: all_scores[member] for member in members}
        assert 50_000 < await redis_client.pttl(GROUP_RANKINGS[order]("news")) <= 60_000
        assert await redis_client.exists(GROUP_BUILDING(order, "news")) == 0
        assert await redis_client.exists(GROUP_BUILDER(order, "news")) == 0
    others: list[Order] = ["hot", "best", "top", "controversial"]
    for order in others:
        assert {f"article:{id}" for id in await listed_ids(lists, "news", order)} == members


async def test_a_ranking_about_to_expire_or_without_expiry_is_built_again(
    articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    first, second = await post(ana, "news"), await post(ana, "news")
    group_rankings, ranking = (
        GroupRankings(articles.functions, step=1, step_seconds=0, single_step_size=0),
        GROUP_RANKINGS["score"]("news"),
    )
    await redis_client.zadd(ranking, {"article:999": 1})
    for left in (500, None):  # None: another service died before EXPIRE
        if left is None:
            await redis_client.persist(ranking)
        else:
            await redis_client.pexpire(ranking, left)
        await group_rankings.ensure("score", "news")
        assert await redis_client.zrange(ranking, 0, -1) == [f"article:{first.id}", f"article:{second.id}"]
        assert 50_000 < await redis_client.pttl(ranking) <= 60_000


async def test_a_vote_shows_in_the_groups_ranking_after_its_minute(
    articles: Articles, lists: ArticleLists, post: Post, ana: Actor, redis_client: Any
) -> None:
    first, second = await post(ana, "news"), await post(ana, "news")
    assert await listed_ids(lists, "news") == [second.id, first.id]
    await articles.vote(user("ben"), first.id, "up")
    assert await listed_ids(lists, "news") == [second.id, first.id]
    await expire(redis_client, "news")
    assert await listed_ids(lists, "news") == [first.id, second.id]


async def test_joining_and_leaving_a_group_shows_at_once(
    articles: Articles, lists: ArticleLists, post: Post, ana: Actor, redis_client: Any
) -> None:
    first, second = await post(ana, "news"), await post(ana)
    for article in (first, second):
        await articles.vote(user("critic"), article.id, "down")
    for order in ORDERS:
        assert await listed_ids(lists, "news", order) == [first.id]
    await articles.group(ana, second.id, "news", "in")
    for order in ORDERS:
        assert set(await listed_ids(lists, "news", order)) == {first.id, second.id}
    await articles.group(ana, first.id, "news", "out")
    for order in ORDERS:
        assert await listed_ids(lists, "news", order) == [second.id]
        assert await redis_client.zrange(GROUP_RANKINGS[order]("news"), 0, -1) == [f"article:{second.id}"]


async def test_a_group_without_controversial_articles_is_scanned_once_a_minute(
    articles: Articles, lists: ArticleLists, post: Post, ana: Actor, redis_client: Any
) -> None:
    article, disputed = await post(ana, "news"), await post(ana)
    await articles.vote(user("critic"), disputed.id, "down")
    group_rankings = GroupRankings(articles.functions, step=1, step_seconds=0, single_step_size=0)
    first = await count_round_trips(articles.valkey, group_rankings.ensure("controversial", "news"))
    again = await count_round_trips(articles.valkey, group_rankings.ensure("controversial", "news"))
    assert (first > 1, again) == (True, 1)
    assert 50_000 < await redis_client.pttl(GROUP_BUILDER("controversial", "news")) <= 60_000
    await articles.group(ana, disputed.id, "news", "in")  # it shows at once
    await group_rankings.ensure("controversial", "news")
    assert await listed_ids(lists, "news", "controversial") == [disputed.id]
    assert set(await listed_ids(lists, "news", "top")) == {article.id, disputed.id}


async def test_an_unknown_group_is_an_empty_list(lists: ArticleLists, redis_client: Any) -> None:
    for order in ORDERS:
        assert await listed_ids(lists, "unknown", order) == []
        assert await redis_client.exists(GROUP_RANKINGS[order]("unknown")) == 0


async def test_500_readers_of_an_expired_ranking_cause_one_build(
    place: Server | Cluster,
    lists: ArticleLists,
    post: Post,
    ana: Actor,
    clock: ManualClock,
    valkey: Valkey,
    redis_client: Any,
) -> None:
    for _ in range(200):
        clock.advance(seconds=1)
        article = await post(ana, "news")
    newest = (article.id, article.id - 1, article.id - 2)
    others: list[ArticleLists] = []
    connections = [await connect_for_test(place.url) for _ in range(4)]  # as other processes have
    for connection in connections:
        functions = Functions(connection, [])
        functions.built = lists._functions.built
        articles = Articles(functions, clock, 7)
        group_rankings = GroupRankings(functions, step=10, step_seconds=0, single_step_size=0)
        others.append(ArticleLists(articles, group_rankings, Snapshots(connection, clock)))
    before = await calls(valkey, "sscan")
    await listed_ids(others[0], "news")
    one_build = await calls(valkey, "sscan") - before
    assert one_build > 1  # several steps, so that readers arrive during the build
    orders: list[Order] = ["score", "time"]
    for order in orders:
        await expire(redis_client, "news")
        before = await calls(valkey, "sscan")
        query = ArticlesQuery(order=order, limit=3)
        pages = await asyncio.gather(*(others[i % 4].list_group(None, "news", query) for i in range(500)))
        assert {tuple(article.id for article in page.articles) for page in pages} == {newest}
        await asyncio.gather(*(lists._group_rankings.ensure(order, "news") for lists in others))
        assert await calls(valkey, "sscan") == before + one_build
    for connection in connections:
        await connection.close()


async def test_a_builder_that_dies_is_replaced(lists: ArticleLists, post: Post, ana: Actor, redis_client: Any) -> None:
    made = [await post(ana, "news") for _ in range(2)]
    await redis_client.set(GROUP_BUILDER("score", "news"), "dead", px=200)
    await redis_client.zadd(GROUP_BUILDING("score", "news"), {"article:999": 1.0})
    await GroupRankings(lists._functions, step=1, step_seconds=0, single_step_size=0).ensure("score", "news")
    assert await redis_client.zrange(GROUP_RANKINGS["score"]("news"), 0, -1) == [
        f"article:{article.id}" for article in made
    ]


@pytest.mark.parametrize("order", ["score", "time"])
async def test_the_first_page_of_a_large_group_does_not_wait_for_its_ranking(
    lists: ArticleLists, post: Post, ana: Actor, clock: ManualClock, redis_client: Any, order: Order
) -> None:
    made = []
    for i in range(100):
        clock.advance(seconds=1)
        article = await post(ana, *(["news"] if i % 10 else []))
        made += [article.id] if i % 10 else []
    newest = made[::-1]
    group_rankings = GroupRankings(lists._functions, single_step_size=0)
    lists = ArticleLists(lists._articles, group_rankings, lists._snapshots)
    await redis_client.set(GROUP_BUILDER(order, "news"), "another process", px=60_000)
    first = await lists.list_group(None, "news", ArticlesQuery(order=order, limit=10))
    assert [article.id for article in first.articles] == newest[:10]
    assert await redis_client.exists(GROUP_RANKINGS[order]("news")) == 0
    query = ArticlesQuery(order=order, limit=100, cursor=first.pagination.next_cursor)
    second = asyncio.create_task(lists.list_group(None, "news", query))
    await redis_client.delete(GROUP_BUILDER(order, "news"))
    assert [article.id for article in (await second).articles] == newest[10:]


async def build_step(functions: Functions, token: str, *ids: int) -> Any:
    """One step of a builder that has scanned these articles."""
    keys = [GROUP_BUILDING("score", "news"), GROUP_BUILDER("score", "news"), GROUP("news")]
    if functions.valkey.clustered:
        pairs = [part for id in ids for part in (f"article:{id}", "1")]
        return await functions.run("articles_add_scores", keys, token, *pairs)
    return await functions.run("articles_step", [*keys, ARTICLES_BY_SCORE()], token, "0", 500, 0)


async def test_a_stalled_builder_publishes_nothing(
    functions: Functions, post: Post, ana: Actor, redis_client: Any
) -> None:
    article = await post(ana, "news")
    ranking, building, builder = news_keys()
    keys = [ranking, building, builder, GROUP("news")]
    assert await functions.run("articles_begin_build", keys, "slow", 500, "news") == "build"
    await redis_client.delete(builder)  # its lease ran out
    assert await functions.run("articles_begin_build", keys, "quick", 500, "news") == "build"
    assert not await build_step(functions, "slow", article.id)
    assert await functions.run("articles_publish", [ranking, building, builder], "slow", 60_000) == 0
    assert await redis_client.exists(ranking) == 0
    assert await build_step(functions, "quick", article.id)
    assert await functions.run("articles_publish", [ranking, building, builder], "quick", 60_000) == 1
    assert await redis_client.zrange(ranking, 0, -1) == [f"article:{article.id}"]


async def test_every_step_renews_the_builders_lease(
    functions: Functions, post: Post, ana: Actor, redis_client: Any
) -> None:
    article = await post(ana, "news")
    ranking, building, builder = news_keys()
    assert (
        await functions.run("articles_begin_build", [ranking, building, builder, GROUP("news")], "me", 500, "news")
        == "build"
    )
    await redis_client.pexpire(builder, 2500)
    assert await build_step(functions, "me", article.id)
    assert 2500 < await redis_client.pttl(builder) <= 5000


async def test_articles_deleted_during_a_build_are_not_in_the_ranking(
    functions: Functions, articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    remaining, early, late = [await post(ana, "news") for _ in range(3)]
    ranking, building, builder = news_keys()
    keys = [ranking, building, builder, GROUP("news")]
    assert await functions.run("articles_begin_build", keys, "me", 500, "news") == "build"
    await articles.delete(ana, early.id)  # on a cluster the scan may have read it before
    assert await build_step(functions, "me", early.id, late.id, remaining.id)
    await articles.delete(ana, late.id)  # added before
    assert await functions.run("articles_publish", [ranking, building, builder], "me", 60_000) == 1
    assert await redis_client.zrange(ranking, 0, -1) == [f"article:{remaining.id}"]


async def test_articles_that_join_during_a_build_are_in_the_ranking(
    functions: Functions, post: Post, ana: Actor, redis_client: Any
) -> None:
    early = await post(ana, "news")
    ranking, building, builder = news_keys()
    keys = [ranking, building, builder, GROUP("news")]
    assert await functions.run("articles_begin_build", keys, "me", 500, "news") == "build"
    late = await post(ana, "news")  # on a cluster the early one is scanned but not added yet
    assert 50_000 < await redis_client.pttl(building) <= 60_000
    assert await build_step(functions, "me", early.id)
    assert await functions.run("articles_publish", [ranking, building, builder], "me", 60_000) == 1
    assert set(await redis_client.zrange(ranking, 0, -1)) == {f"article:{early.id}", f"article:{late.id}"}


async def test_a_large_group_is_built_in_steps(
    lists: ArticleLists, articles: Articles, valkey: Valkey, redis_client: Any
) -> None:
    rng = random.Random(2)
    members = {f"article:{i}": rng.random() for i in range(1, 3001)}
    await redis_client.zadd(ARTICLES_BY_SCORE(), members)
    chosen = set(rng.sample(sorted(members), 1200))
    await redis_client.sadd(GROUP("news"), *chosen)
    before = await calls(valkey, "sscan")
    await GroupRankings(articles.functions).ensure("score", "news")
    assert await calls(valkey, "sscan") - before > 3  # short steps with the default size
    ranking = dict(await redis_client.zrange(GROUP_RANKINGS["score"]("news"), 0, -1, withscores=True))
    assert ranking == {member: members[member] for member in chosen}


async def test_a_rankings_minute_starts_when_its_build_began(
    articles: Articles, valkey: Valkey, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"article:{i}": float(i) for i in range(1, 301)}
    await redis_client.zadd(ARTICLES_BY_SCORE(), members)
    await redis_client.sadd(GROUP("news"), *members)
    call, times = articles.functions.run, list[tuple[float, float]]()

    async def timed(command: str, *args: Any) -> Any:
        began = time.time()
        await asyncio.sleep(0.02)  # so that the build takes a while on a fast machine too
        answer = await call(command, *args)
        times.append((began * 1000, time.time() * 1000))
        return answer

    monkeypatch.setattr(articles.functions, "run", timed)
    await GroupRankings(articles.functions, step=1, step_seconds=0, single_step_size=0).ensure("score", "news")
    assert await redis_client.zcard(GROUP_RANKINGS["score"]("news")) == 300
    _, *steps, (_, published) = times
    took_ms = steps[-1][1] - steps[0][0]
    assert await redis_client.pexpiretime(GROUP_RANKINGS["score"]("news")) <= published + 60_000 - took_ms + 2


async def test_all_readers_get_the_error_of_a_failed_build(
    articles: Articles, post: Post, ana: Actor, redis_client: Any
) -> None:
    await post(ana, "news")
    await redis_client.delete(ARTICLES_BY_SCORE())
    await redis_client.set(ARTICLES_BY_SCORE(), "not a zset")
    group_rankings = GroupRankings(articles.functions)
    found = await asyncio.gather(*(group_rankings.ensure("score", "news") for _ in range(5)), return_exceptions=True)
    assert all("WRONGTYPE" in str(error) for error in found)
    await redis_client.delete(ARTICLES_BY_SCORE())


async def test_pages_of_a_group_neither_repeat_nor_skip(
    articles: Articles, lists: ArticleLists, post: Post, ana: Actor, clock: ManualClock, redis_client: Any
) -> None:
    for i in range(60):
        clock.advance(seconds=i % 2)
        await post(ana, "news")
    for order in ("score", "time"):
        existing = set(await listed_ids(lists, "news", order))
        seen: list[int] = []
        cursor = None
        while True:
            page = await lists.list_group(None, "news", ArticlesQuery(order=order, cursor=cursor))
            seen += [article.id for article in page.articles]
            cursor = page.pagination.next_cursor
            if cursor is None:
                break
            clock.advance(seconds=1)
            await asyncio.gather(*(post(ana, "news") for _ in range(20)))
            await asyncio.gather(*(articles.vote(user("ben"), id, "up") for id in range(1, 30)))
            await expire(redis_client, "news")
        assert len(seen) == len(set(seen))
        assert existing <= set(seen)


async def test_a_page_of_an_existing_ranking_costs_at_most_two_round_trips(
    lists: ArticleLists, articles: Articles, post: Post, ana: Actor
) -> None:
    for _ in range(30):
        await articles.vote(user("critic"), (await post(ana, "news")).id, "down")
    for order in ORDERS:
        await lists.list_group(None, "news", ArticlesQuery(order=order))  # creates the ranking and the snapshot
        work = lists.list_group(None, "news", ArticlesQuery(order=order))
        assert await count_round_trips(lists._valkey, work) == (2 if lists._valkey.clustered else 1)
