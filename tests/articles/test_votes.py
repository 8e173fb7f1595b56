"""A user has one vote per article, and everything derived from votes agrees."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from plaza.articles.keys import (
    ARTICLE,
    ARTICLE_DOWN,
    ARTICLE_UP,
    ARTICLES_BY_SCORE,
    USER_VOTES,
)
from plaza.articles.model import Direction, VotingClosed
from plaza.articles.service import Articles
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.errors import NotFound
from tests.articles.conftest import VOTING_DAYS, Post, user
from tests.round_trips import count_round_trips
from tests.servers import Cluster, Server


async def stored_votes(redis_client: Any, id: int) -> tuple[set[str], set[str], int, float]:
    """Upvoters, downvoters, `votes` and the score, as a plain client reads them."""
    ups, downs = await redis_client.smembers(ARTICLE_UP(id)), await redis_client.smembers(ARTICLE_DOWN(id))
    votes = int(await redis_client.hget(ARTICLE(id), "votes"))
    return ups, downs, votes, await redis_client.zscore(ARTICLES_BY_SCORE(), f"article:{id}")


async def test_the_authors_own_vote_counts(post: Post, redis_client: Any) -> None:
    article = await post()
    assert article.votes == 1
    assert article.vote == "up"
    ups, downs, votes, score = await stored_votes(redis_client, article.id)
    assert (ups, downs, votes) == ({"user:ana"}, set(), 1)
    assert score == article.time + 432 == article.score


async def test_switching_and_removing_a_vote_are_exact(
    articles: Articles, post: Post, ben: Actor, redis_client: Any
) -> None:
    article = await post()
    steps: list[tuple[Direction | None, set[str], set[str]]] = [
        ("up", {"user:ana", "user:ben"}, set()),
        ("up", {"user:ana", "user:ben"}, set()),
        ("down", {"user:ana"}, {"user:ben"}),
        ("up", {"user:ana", "user:ben"}, set()),
        (None, {"user:ana"}, set()),
        (None, {"user:ana"}, set()),
        ("down", {"user:ana"}, {"user:ben"}),
        (None, {"user:ana"}, set()),
    ]
    for direction, ups, downs in steps:
        vote = await articles.vote(ben, article.id, direction)
        votes = len(ups) - len(downs)
        score = article.time + 432 * votes
        assert (vote.votes, vote.score, vote.vote) == (votes, score, direction)
        assert await stored_votes(redis_client, article.id) == (ups, downs, votes, score)
        assert (await articles.read(ben, article.id)).vote == direction


async def test_an_author_can_remove_their_vote(articles: Articles, post: Post, ana: Actor, redis_client: Any) -> None:
    article = await post()
    await articles.vote(ana, article.id, None)
    assert await stored_votes(redis_client, article.id) == (set(), set(), 0, article.time)


async def test_a_vote_on_a_missing_article_is_rejected_and_creates_nothing(
    articles: Articles, ana: Actor, redis_client: Any
) -> None:
    for direction in ("up", "down", None):
        with pytest.raises(NotFound):
            await articles.vote(ana, 92617, direction)
    for key in (ARTICLE(92617), ARTICLE_UP(92617), ARTICLE_DOWN(92617), ARTICLES_BY_SCORE(), USER_VOTES("ana")):
        assert await redis_client.exists(key) == 0


async def test_voting_closes_a_week_after_posting(
    articles: Articles, post: Post, ben: Actor, clock: ManualClock, redis_client: Any
) -> None:
    article = await post()
    clock.advance(days=VOTING_DAYS, seconds=-0.001)
    assert (await articles.vote(ben, article.id, "up")).votes == 2
    clock.advance(seconds=0.001)
    before = await stored_votes(redis_client, article.id)
    for direction in ("up", "down", None):
        with pytest.raises(VotingClosed):
            await articles.vote(ben, article.id, direction)
    assert await stored_votes(redis_client, article.id) == before


async def test_with_zero_days_voting_never_closes(
    articles: Articles, post: Post, ben: Actor, clock: ManualClock
) -> None:
    article = await post()
    clock.advance(days=4000)
    assert (await Articles(articles.functions, clock, 0).vote(ben, article.id, "up")).votes == 2


async def test_votes_that_another_service_wrote_as_no_integer_are_counted(
    articles: Articles, post: Post, ben: Actor, redis_client: Any
) -> None:
    article = await post()
    for odd in ("99999999999999999999", "007", "-0", "1.5"):
        await redis_client.hset(ARTICLE(article.id), "votes", odd)
        assert (await articles.read(None, article.id)).votes == 1, odd
        assert (await articles.vote(ben, article.id, "up")).votes == 2, odd
        assert (await stored_votes(redis_client, article.id))[2] == 2, odd
        assert (await articles.vote(ben, article.id, None)).votes == 1, odd


async def test_a_user_found_in_both_sets_is_an_upvoter(
    articles: Articles, post: Post, ben: Actor, redis_client: Any
) -> None:
    article = await post()
    await articles.vote(ben, article.id, "up")
    await redis_client.sadd(ARTICLE_DOWN(article.id), "user:ben")  # as only a faulty writer would
    assert (await articles.read(ben, article.id)).vote == "up"
    await articles.vote(ben, article.id, "down")
    assert await stored_votes(redis_client, article.id) == ({"user:ana"}, {"user:ben"}, 0, article.time)


async def test_thousands_of_concurrent_votes_leave_correct_scores(
    articles: Articles, post: Post, redis_client: Any, place: Server | Cluster
) -> None:
    count = 10_000 if isinstance(place, Server) else 3_000  # a cluster takes four times as long for a vote
    rng = random.Random(4)
    ids = [(await post()).id for _ in range(20)]
    voters = [user(f"user{i}") for i in range(500)]
    calls: list[tuple[Actor, int, Direction | None]] = [
        (rng.choice(voters), rng.choice(ids), rng.choice(["up", "up", "down", None])) for _ in range(count)
    ]
    await asyncio.gather(*(articles.vote(*call) for call in calls))
    # On a busy machine some projections may have missed their deadline; then a worker applies them.
    await articles.functions.outbox.drain()
    await articles.functions.outbox_recovery.recover(0)
    for id in ids:
        ups, downs, votes, score = await stored_votes(redis_client, id)
        posted = float(await redis_client.hget(ARTICLE(id), "time"))
        assert not ups & downs
        assert votes == len(ups) - len(downs)
        assert score == posted + 432 * votes
    await assert_voter_indexes_match(redis_client, voters, ids)


async def assert_voter_indexes_match(redis_client: Any, voters: list[Actor], ids: list[int]) -> None:
    sets = {id: await stored_votes(redis_client, id) for id in ids}
    for actor in voters[::25]:
        voted = dict(await redis_client.zrange(USER_VOTES(actor.name), 0, -1, withscores=True))
        for id, (ups, downs, _, _) in sets.items():
            name = f"user:{actor.name}"
            assert voted.get(f"article:{id}", 0) == (name in ups) - (name in downs)


async def test_a_vote_is_one_round_trip_on_one_server_and_three_on_a_cluster(
    articles: Articles, post: Post, ben: Actor
) -> None:
    article = await post()
    for direction in ("up", "down", None):
        rounds = await count_round_trips(articles.valkey, articles.vote(ben, article.id, direction))
        assert rounds == (3 if articles.valkey.clustered else 1)
