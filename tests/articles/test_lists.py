"""Pages neither repeat nor skip articles, whatever happens between two requests."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import convert

from plaza.articles.comments import ArticleComments
from plaza.articles.group_rankings import GroupRankings
from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_DOWN,
    ARTICLE_UP,
    ARTICLES_BY_BEST,
    ARTICLES_BY_CONTROVERSIAL,
    ARTICLES_BY_HOT,
    ARTICLES_BY_TIME,
)
from plaza.articles.lists import ArticleLists
from plaza.articles.model import Article, ArticlesQuery, Direction, NewArticleComment, Order
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import Gone, Invalid
from plaza.core.functions import Functions
from plaza.core.paging import Snapshots
from plaza.core.valkey import REQUEST_USAGE, RequestUsage
from tests.articles.conftest import Post, user
from tests.round_trips import count_round_trips
from tests.servers import Cluster, Server
from tests.timeouts import connect_for_test

ORDERS: list[Order] = ["score", "time", "hot", "best", "top", "controversial"]


async def read_all_pages(lists: ArticleLists, order: Order, limit: int = 25) -> list[Article]:
    """All articles, page by page."""
    found: list[Article] = []
    cursor = None
    while True:
        page = await lists.list_articles(None, ArticlesQuery(order=order, limit=limit, cursor=cursor))
        found += page.articles
        cursor = page.pagination.next_cursor
        if cursor is None:
            return found
        assert len(page.articles) == limit  # a page is full unless the list ends


async def test_lists_are_ordered_by_score_and_by_time(
    articles: Articles, lists: ArticleLists, post: Post, ben: Actor, clock: ManualClock
) -> None:
    made = []
    for _ in range(3):
        made.append((await post()).id)
        clock.advance(seconds=100)
    await articles.vote(ben, made[0], "up")
    assert [a.id for a in (await lists.list_articles(None, ArticlesQuery(order="score"))).articles] == [
        made[0],
        made[2],
        made[1],
    ]
    assert [a.id for a in (await lists.list_articles(None, ArticlesQuery(order="time"))).articles] == made[::-1]


@pytest.mark.parametrize("order", ["score", "time"])
async def test_no_article_is_repeated_or_skipped_when_200_inserts_and_votes_come_between_pages(
    articles: Articles, lists: ArticleLists, post: Post, clock: ManualClock, order: Order
) -> None:
    rng = random.Random(1)
    for i in range(60):  # five at the same time, so that many scores are equal
        if i % 5 == 0:
            clock.advance(seconds=1)
        await post()
    existing = {article.id for article in await read_all_pages(lists, order)}
    seen: list[int] = []
    cursor = None
    while True:
        page = await lists.list_articles(None, ArticlesQuery(order=order, cursor=cursor))
        seen += [article.id for article in page.articles]
        cursor = page.pagination.next_cursor
        if cursor is None:
            break
        clock.advance(seconds=1)
        work: list[Any] = [post(title="new") for _ in range(100)]
        work += [articles.vote(user(f"u{i}"), rng.randint(1, 60), rng.choice(["up", "down"])) for i in range(100)]
        await asyncio.gather(*work)
    assert len(seen) == len(set(seen))
    assert existing <= set(seen)


async def test_a_page_is_full_although_articles_were_deleted_meanwhile(
    articles: Articles, lists: ArticleLists, post: Post, ana: Actor
) -> None:
    made = [(await post()).id for _ in range(70)]
    page = await lists.list_articles(None, ArticlesQuery())
    later = [id for id in made if id not in {a.id for a in page.articles}]
    for id in later[:15]:
        await articles.delete(ana, id)
    second = await lists.list_articles(None, ArticlesQuery(cursor=page.pagination.next_cursor))
    assert len(second.articles) == 25
    assert second.pagination.next_cursor is not None
    third = await lists.list_articles(None, ArticlesQuery(cursor=second.pagination.next_cursor))
    assert [len(third.articles), third.pagination.next_cursor] == [5, None]


async def test_a_page_has_25_articles_by_default(lists: ArticleLists, articles: Articles, post: Post) -> None:
    for _ in range(26):
        await articles.vote(user("critic"), (await post()).id, "down")
    for order in ORDERS:
        page = await lists.list_articles(None, ArticlesQuery(order=order))
        assert (len(page.articles), page.pagination.limit, page.pagination.count) == (25, 25, 25)
        assert len(await read_all_pages(lists, order, limit=10)) == 26
    assert len((await lists.list_articles(None, ArticlesQuery(order="score", offset=20))).articles) == 6


async def test_a_cursor_of_another_order_is_rejected_and_an_old_one_is_gone(
    lists: ArticleLists, post: Post, clock: ManualClock
) -> None:
    for _ in range(3):
        await post()
    by_score = (await lists.list_articles(None, ArticlesQuery(limit=1))).pagination.next_cursor
    with pytest.raises(Invalid):
        await lists.list_articles(None, ArticlesQuery(order="time", cursor=by_score))
    with pytest.raises(Invalid):
        await lists.list_articles(None, ArticlesQuery(order="hot", cursor=by_score))
    clock.advance(seconds=601)
    with pytest.raises(Gone):
        await lists.list_articles(None, ArticlesQuery(cursor=by_score))


async def test_an_empty_list_is_a_page(lists: ArticleLists) -> None:
    for order in ORDERS:
        page = await lists.list_articles(None, ArticlesQuery(order=order))
        assert (page.articles, page.pagination.next_cursor) == ([], None)


async def test_viewers_see_their_own_vote_on_each_article(
    articles: Articles, lists: ArticleLists, post: Post, ben: Actor
) -> None:
    votes: dict[int, Direction | None] = {(await post()).id: vote for vote in ("up", "down", None)}
    for id, vote in votes.items():
        await articles.vote(ben, id, vote)
    page = await lists.list_articles(ben, ArticlesQuery(order="time"))
    assert {article.id: article.vote for article in page.articles} == votes
    anonymous = await lists.list_articles(None, ArticlesQuery(order="time"))
    assert {article.vote for article in anonymous.articles} == {None}


async def test_a_page_costs_two_round_trips_whatever_its_size(
    lists: ArticleLists, articles: Articles, post: Post, ben: Actor
) -> None:
    for _ in range(30):
        await articles.vote(user("critic"), (await post()).id, "down")
    for order in ORDERS:
        first = await lists.list_articles(ben, ArticlesQuery(order=order))
        for query in (
            ArticlesQuery(order=order),
            ArticlesQuery(order=order, limit=2),
            ArticlesQuery(order=order, cursor=first.pagination.next_cursor),
        ):
            usage = RequestUsage()
            REQUEST_USAGE.set(usage)
            await lists.list_articles(ben, query)
            assert usage.trips == 2


async def test_a_large_offset_is_read_in_steps(lists: ArticleLists, articles: Articles, post: Post) -> None:
    await asyncio.gather(*(post() for _ in range(260)))
    query = ArticlesQuery(order="time", offset=200, limit=50)
    assert len((await lists.list_articles(None, query)).articles) == 50
    # On a cluster, to skip: the ranking, then 200 articles in one batch. Then the page: the ranking, then 50 articles.
    # On one server the first read has cached the articles.
    assert await count_round_trips(articles.valkey, lists.list_articles(None, query)) == (
        4 if articles.valkey.clustered else 2
    )


async def test_another_process_shows_every_change_at_the_next_read(
    place: Server | Cluster, articles: Articles, post: Post, clock: ManualClock, ben: Actor, redis_client: Any
) -> None:
    """One process writes. Another one, which has cached all articles, reads after each write."""
    made = [(await post()).id for _ in range(6)]
    connection = await connect_for_test(place.url)
    reader = Articles(Functions(connection, []), clock, 7)
    reader.functions.built = articles.functions.built
    others = ArticleLists(reader, GroupRankings(reader.functions), Snapshots(connection, clock))
    comments = ArticleComments(articles, None, None)
    rng = random.Random(3)

    async def write_once(id: int) -> None:
        operations: list[Callable[[], Awaitable[object]]] = [
            lambda: articles.vote(rng.choice([ben, user("cat")]), id, rng.choice(["up", "down", None])),
            lambda: articles.group(Actor("root", "admin"), id, rng.choice("ab"), rng.choice(["in", "out"])),
            lambda: comments.create(ben, id, NewArticleComment("Hello"), f"{rng.random()}"),
            lambda: redis_client.hset(ARTICLE(id), "title", f"{rng.random()}"),
            lambda: redis_client.hdel(ARTICLE(id), "votes"),
            lambda: redis_client.sadd(ARTICLE_UP(id), f"user:{rng.random()}"),
            lambda: redis_client.sadd(ARTICLE_DOWN(id), "user:ben"),
        ]
        await rng.choice(operations)()

    for _ in range(80):
        await write_once(rng.choice(made))
        shown = (await others.list_articles(ben, ArticlesQuery(order="time"))).articles
        assert shown == await articles.read_many(ben, made[::-1])
    await articles.delete(Actor("root", "admin"), made.pop())
    shown = (await others.list_articles(None, ArticlesQuery(order="time"))).articles
    assert [article.id for article in shown] == made[::-1]
    await connection.close()


async def test_hot_best_and_controversial_follow_their_formulas(
    articles: Articles, post: Post, clock: ManualClock, redis_client: Any
) -> None:
    for ups, downs in [(1, 0), (12, 0), (3, 3), (1, 5), (9, 4)]:
        article = await post(user("voter0"))
        for i in range(1, ups + downs):
            await articles.vote(user(f"voter{i}"), article.id, "up" if i < ups else "down")
        member, votes, n = f"article:{article.id}", ups - downs, ups + downs
        size = math.log10(max(abs(votes), 1))
        hot = math.copysign(size, votes) + (article.time - 1134028003) / 45000
        assert await redis_client.zscore(ARTICLES_BY_HOT(), member) == pytest.approx(hot, abs=1e-9)
        z, share = 1.281551565545, ups / n
        root = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        wilson = (share + z * z / (2 * n) - root) / (1 + z * z / n)
        assert await redis_client.zscore(ARTICLES_BY_BEST(), member) == pytest.approx(wilson, abs=1e-12)
        controversy = n ** (min(ups, downs) / max(ups, downs)) if ups and downs else None
        assert await redis_client.zscore(ARTICLES_BY_CONTROVERSIAL(), member) == pytest.approx(controversy, abs=1e-12)
        clock.advance(seconds=1)


async def test_an_article_is_controversial_while_it_has_votes_of_both_kinds(
    articles: Articles, lists: ArticleLists, post: Post, ben: Actor
) -> None:
    async def controversial() -> list[int]:
        page = await lists.list_articles(None, ArticlesQuery(order="controversial"))
        return [article.id for article in page.articles]

    article = await post()
    await post()
    assert await controversial() == []
    await articles.vote(ben, article.id, "down")
    assert await controversial() == [article.id]
    await articles.vote(ben, article.id, None)
    assert await controversial() == []


async def test_the_top_of_a_period_is_what_was_posted_in_it_by_votes(
    articles: Articles, lists: ArticleLists, post: Post, ben: Actor, clock: ManualClock, redis_client: Any
) -> None:
    made = []
    for seconds in (10 * 86_400, 3 * 86_400, 60, 60):
        made.append((await post(user("ana"), "news")).id)
        clock.advance(seconds=seconds)
    old, week, plain, liked = made
    await articles.vote(ben, liked, "up")
    await articles.vote(ben, week, "down")
    for name in ("eva", "gus"):
        await redis_client.sadd(ARTICLE_UP(old), f"user:{name}")
    await articles.functions.run("articles_repair_votes", [ARTICLE(old)], "", old)
    expected = {"day": [liked, plain], "week": [liked, plain, week], "all": [old, liked, plain, week]}
    assert await redis_client.zscore("top:", f"article:{old}") == 3
    for period, ids in expected.items():
        query = convert({"order": "top", "period": period}, ArticlesQuery)
        assert [article.id for article in (await lists.list_articles(None, query)).articles] == ids
        assert [article.id for article in (await lists.list_group(None, "news", query)).articles] == ids
    with pytest.raises(Invalid):
        ArticlesQuery(order="hot", period="day")


async def test_articles_posted_at_the_same_time_are_all_listed(
    lists: ArticleLists, post: Post, redis_client: Any
) -> None:
    made = {(await post()).id for _ in range(120)}
    times = {score for _, score in await redis_client.zrange(ARTICLES_BY_TIME(), 0, -1, withscores=True)}
    assert len(times) == 1
    seen = [article.id for article in await read_all_pages(lists, "time", limit=20)]
    assert len(seen) == 120
    assert set(seen) == made
