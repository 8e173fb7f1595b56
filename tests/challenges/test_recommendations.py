"""Recommendations are recent, have a reason, and never contain excluded posts."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from sqlalchemy import delete, select

from plaza.challenges.keys import CLG_NEIGHBOURS, CLG_POPULAR, CLG_SHOWN, CLG_TICKETS
from plaza.challenges.recommendation.neighbour_cache import NeighbourCache
from plaza.challenges.recommendation.recommender import MAX_DAYS_SHOWN
from plaza.challenges.tables import DELETE_LOG, INSERT_LOG, POST
from plaza.core.auth import Actor
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.social.keys import USER_BLOCKED, USER_BLOCKED_BY
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, ChallengeServices, assemble, user
from tests.challenges.expected_state import assert_matches_tables
from tests.round_trips import count_round_trips


async def reasons(services: ChallengeServices, viewer: Actor, limit: int = 20) -> dict[int, str]:
    """The reasons of a viewer's recommendations by post id."""
    found = await services.recommender.recommend(viewer, limit)
    return {recommended.post.id: recommended.reason for recommended in found.posts}


async def stored_neighbours(redis_client: Any, challenge: int) -> bytes:
    """A challenge's neighbours as a plain client reads them, without decoding."""
    value: bytes = await redis_client.execute_command("GET", CLG_NEIGHBOURS(challenge), NEVER_DECODE=True)
    return value


async def test_a_new_user_gets_popular_and_new_posts(services: ChallengeServices) -> None:
    fit, mind = await services.joined(BEN, category=1), await services.joined(CLEO, category=3)
    popular, fresh = await services.post(BEN, fit), await services.post(CLEO, mind)
    for name in ("dan", "eve"):
        await services.posts.react(user(name), popular.id)
    assert await reasons(services, user("newcomer")) == {popular.id: "Popular: 2 reactions", fresh.id: "New in mind"}


async def test_popular_posts_are_found_among_many_newer_ones(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.PER_CATEGORY", 1)
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.RANDOM_PER_CATEGORY", 0)
    id = await services.joined(BEN, CLEO)
    popular = await services.post(CLEO, id)
    for name in ("dan", "eve"):
        await services.posts.react(user(name), popular.id)
    newest = [await services.post(BEN, id) for _ in range(3)][-1]
    await services.posts.react(ANA, newest.id)
    await services.daily_job.run()
    assert await redis_client.zrange(CLG_POPULAR(), 0, -1, withscores=True) == [
        (str(newest.id), 1),
        (str(popular.id), 2),
    ]
    assert await reasons(services, user("newcomer")) == {
        popular.id: "Popular: 2 reactions",
        newest.id: "New in fitness",
    }
    await services.posts.remove_reaction(ANA, newest.id)
    await services.personal_data.delete("cleo")
    await services.daily_job.run()
    assert not await redis_client.exists(CLG_POPULAR())


async def test_days_in_a_category_and_reactions_in_a_challenge_are_reasons(services: ChallengeServices) -> None:
    fit, mind, food = [await services.joined(ANA, BEN, CLEO, category=n) for n in (1, 3, 2)]
    await services.track(ANA, fit)
    run, think, cook, bake = [await services.post(BEN, id) for id in (fit, mind, food, food)]
    await services.posts.react(ANA, cook.id)
    assert await reasons(services, ANA) == {
        run.id: "1 day in fitness",
        bake.id: "You reacted once in Run every day",
        think.id: "New in mind",
    }


async def test_the_daily_job_computes_similar_challenges(services: ChallengeServices, redis_client: Any) -> None:
    run, swim, bake, knit = [await services.challenge(title=title) for title in ("Run", "Swim", "Bake", "Knit")]
    secret = await services.challenge(public=False)
    for one in (run, swim, secret):
        await services.challenges.join(ANA, one.id)
    posts = {one.id: (await services.post(ANA, one.id)).id for one in (run, swim)}
    for n in range(4):  # runners swim, cooks knit
        await services.challenges.join(user(f"runner{n}"), run.id)
        await services.posts.react(user(f"runner{n}"), posts[swim.id])
        for one in (bake, knit):
            await services.challenges.join(user(f"cook{n}"), one.id)
    assert (await services.daily_job.run()).fitted == 4
    (other, weight), *_ = struct.iter_unpack("<If", (await stored_neighbours(redis_client, run.id))[1:])
    assert (other, weight > 0) == (swim.id, True)
    assert not await redis_client.exists(CLG_NEIGHBOURS(secret.id))
    assert 0 < await redis_client.ttl(CLG_NEIGHBOURS(run.id)) <= 7 * 86_400

    await services.challenges.join(BEN, run.id)
    assert (await reasons(services, BEN))[posts[swim.id]] == "Because you joined Run"
    await services.posts.react(CLEO, posts[run.id])
    assert (await reasons(services, CLEO))[posts[swim.id]] == "Because you reacted in Run"


async def test_neighbours_follow_the_tables_and_are_deleted_with_their_challenge(
    services: ChallengeServices, redis_client: Any
) -> None:
    short, long = await services.joined(ANA, BEN, days=2), await services.joined(ANA, BEN)
    first = await services.daily_job.run()
    assert (first.fitted, (await services.daily_job.run()).fitted) == (
        2,
        0,
    )  # the same rows need no training
    await services.challenges.join(CLEO, short)
    assert (await services.daily_job.run()).fitted == 2
    trained = await stored_neighbours(redis_client, long)
    assert (await services.daily_job.run(rebuild_all=True)).fitted == 2
    assert await stored_neighbours(redis_client, long) == trained
    services.clock.advance(days=2)
    assert (await services.daily_job.run()).fitted == 0
    assert [await redis_client.exists(CLG_NEIGHBOURS(id)) for id in (short, long)] == [0, 0]


async def test_neighbours_are_cached_until_the_next_training(
    services: ChallengeServices, valkey: Valkey, redis_client: Any
) -> None:
    cache = NeighbourCache(valkey)
    ids = [await services.joined(ANA, BEN), await services.joined(ANA, BEN)]
    assert await cache.read(ids) == [None, None]
    await services.daily_job.run()
    first = await cache.read(ids)
    assert first == [await stored_neighbours(redis_client, id) for id in ids]
    await redis_client.delete(CLG_NEIGHBOURS(ids[0]))
    assert await cache.read(ids) == first
    await services.challenges.join(CLEO, ids[0])
    await services.daily_job.run()
    second = await cache.read(ids)
    assert second == [await stored_neighbours(redis_client, id) for id in ids]
    assert second != first


async def test_only_reactions_of_the_last_30_days_make_a_post_popular(
    functions: Functions, sql: Sql, clock: ManualClock, redis_client: Any
) -> None:
    services = assemble(functions, sql, clock, max_post_age=60)
    id = await services.joined(BEN, days=90)
    old, new = await services.post(BEN, id), await services.post(BEN, id)
    await services.posts.react(ANA, old.id)
    clock.advance(days=30)
    await services.posts.react(ANA, new.id)
    await services.daily_job.run()
    assert await redis_client.zrange(CLG_POPULAR(), 0, -1, withscores=True) == [(str(new.id), 1)]


async def test_the_number_of_remembered_posts_is_limited(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.MAX_REMEMBERED", 3)
    id = await services.joined(BEN)
    for _ in range(2):
        posts = {str((await services.post(BEN, id)).id) for _ in range(2)}
        await reasons(services, ANA, 2)
        services.clock.advance(days=1)
    remembered = set(await redis_client.hgetall(CLG_SHOWN("ana")))
    assert len(remembered) == 3
    assert posts < remembered


async def test_own_reacted_blocked_private_ended_old_and_break_posts_are_never_recommended(
    services: ChallengeServices, redis_client: Any
) -> None:
    open_ = await services.joined(ANA, BEN, CLEO)
    closed = await services.challenge(public=False)
    for member in (ANA, ROOT):
        await services.challenges.join(member, closed.id)
    await services.post(BEN, open_)  # will be too old
    services.clock.advance(days=4)
    brief = await services.joined(BEN, days=1)
    await services.post(BEN, brief)  # will have ended
    services.clock.advance(days=1)
    await services.post(ANA, open_)
    for member in (ANA, ROOT, ROOT):
        secret = await services.post(member, closed.id)
    await services.posts.react(ANA, secret.id)  # so that this challenge is one of the viewer's
    await services.post(BEN, open_, is_break=True)
    reacted, _, good = [await services.post(who, open_) for who in (BEN, CLEO, BEN)]
    await services.posts.react(ANA, reacted.id)

    await redis_client.zadd(USER_BLOCKED_BY("ana"), {"cleo": 1})
    assert set(await reasons(services, ANA)) == {good.id}
    await services.daily_job.run()
    assert set(await reasons(services, ANA)) == {good.id}


async def test_recommendations_change_at_once(services: ChallengeServices) -> None:
    id = await services.joined(ANA, BEN, category=4)
    post = await services.post(BEN, id)
    assert await reasons(services, ANA) == {post.id: "New in learning"}
    await services.track(ANA, id)
    assert await reasons(services, ANA) == {post.id: "1 day in learning"}
    await services.posts.react(ANA, post.id)
    assert await reasons(services, ANA) == {}
    await services.posts.remove_reaction(ANA, post.id)
    assert set(await reasons(services, ANA)) == {post.id}


async def test_recommendations_have_several_authors_and_recent_posts_first(services: ChallengeServices) -> None:
    one, two = await services.joined(BEN, CLEO), await services.joined(CLEO)
    await services.post(CLEO, two)
    services.clock.advance(days=1)
    mine = [(await services.post(BEN, one)).id for _ in range(6)]
    found = await services.recommender.recommend(ANA, 3)
    assert [r.post.username for r in found.posts].count("ben") == 2
    assert found.posts[0].post.id == mine[-1]
    assert len((await services.recommender.recommend(ANA, 20)).posts) == 7  # all, if there are no other authors


async def test_excluded_posts_are_replaced_by_the_next(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All posts are cached after the first response; most are excluded in the second."""
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.SPARE_POSTS", 1)
    id = await services.joined(ANA, BEN, CLEO)
    posts = [(await services.post(who, id)).id for who in (BEN, CLEO, BEN, CLEO, BEN, ANA)]
    assert set(await reasons(services, ANA)) == set(posts[:5])
    for post in posts[2:4]:
        await services.posts.react(ANA, post)
    async with services.sql.begin() as tx:
        await tx.execute(delete(POST).where(POST.c.id == posts[4]))
    assert set(await reasons(services, ANA, 1)) == {posts[1]}
    await redis_client.zadd(USER_BLOCKED("ana"), {"cleo": 1})
    assert set(await reasons(services, ANA, 2)) == {posts[0]}


async def test_the_candidate_cache_is_limited_and_the_candidates_are_not(
    services: ChallengeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.candidate_cache.MAX_CACHED", 10)
    monkeypatch.setattr("plaza.challenges.recommendation.candidate_cache.READ_BATCH", 4)
    id = await services.joined(BEN)
    posts = {(await services.post(BEN, id)).id for _ in range(15)}
    for _ in range(2):
        assert set(await reasons(services, ANA)) == posts
    assert len(services.recommender._candidates._cached) <= 10


async def test_a_post_is_shown_on_a_limited_number_of_days(services: ChallengeServices, redis_client: Any) -> None:
    id = await services.joined(BEN)
    post = await services.post(BEN, id)
    for _ in range(MAX_DAYS_SHOWN):
        assert post.id in await reasons(services, ANA)
        assert post.id in await reasons(services, ANA)  # a second request on the same day does not count
        services.clock.advance(days=1)
    assert post.id not in await reasons(services, ANA)
    new = await services.post(BEN, id)
    services.clock.advance(days=4)
    assert set(await reasons(services, ANA)) == {new.id}
    services.clock.advance(days=4)
    newer = await services.post(BEN, id)
    await reasons(services, ANA)
    assert set(await redis_client.hgetall(CLG_SHOWN("ana"))) == {str(new.id), str(newer.id)}


async def test_recommendations_take_at_most_two_round_trips(services: ChallengeServices, valkey: Valkey) -> None:
    id, _ = await services.joined(ANA, BEN), await services.joined(ANA, BEN)
    for _ in range(5):
        await services.post(BEN, id)
    await services.daily_job.run()

    assert await count_round_trips(valkey, services.recommender.recommend(ANA, 20)) == 2
    assert await count_round_trips(valkey, services.recommender.recommend(ANA, 20)) == 1


async def test_concurrent_reactions_and_removals_leave_what_sql_has(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN)
    posts = [(await services.post(BEN, id)).id for _ in range(3)]
    await services.daily_job.run()
    doing = [
        act(ANA, post)
        for _ in range(4)
        for post in posts
        for act in (services.posts.react, services.posts.remove_reaction)
    ]
    await asyncio.gather(*doing)
    await assert_matches_tables(services, redis_client, ignore="db_len")


async def test_of_two_concurrent_writers_the_later_reader_writes_last(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await services.joined(BEN)
    post = await services.post(BEN, id)
    await services.daily_job.run()
    call = services.functions.run

    async def overtaken(command: str, *args: Any) -> Any:
        if command == "challenges_write_reactions":  # SQL has been read, and the write follows
            monkeypatch.setattr(services.functions, "run", call)
            await services.posts.remove_reaction(ANA, post.id)
        return await call(command, *args)

    monkeypatch.setattr(services.functions, "run", overtaken)
    await services.posts.react(ANA, post.id)
    await assert_matches_tables(services, redis_client, ignore="db_len")


async def test_of_two_concurrent_writes_of_tracked_days_the_larger_number_stays(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await services.joined(ANA), await services.joined(ANA)
    await services.daily_job.run()
    call = services.functions.run

    async def overtaken(command: str, *args: Any) -> Any:
        if command == "challenges_write_contributions":
            monkeypatch.setattr(services.functions, "run", call)
            await services.track(ANA, two)
        return await call(command, *args)

    monkeypatch.setattr(services.functions, "run", overtaken)
    await services.track(ANA, one)
    await assert_matches_tables(services, redis_client, ignore="db_len")


async def test_deleting_a_user_leaves_no_data_and_needs_no_rebuild(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN, CLEO)
    post, other = await services.post(BEN, id), await services.post(CLEO, id)
    await services.posts.react(CLEO, post.id)
    await services.posts.react(BEN, other.id)
    await services.track(BEN, id)
    await services.post(CLEO, id)
    await reasons(services, BEN)
    await services.daily_job.run()
    export = await services.personal_data.export("ben")
    assert {kind: len(found) for kind, found in export.items() if found} == {
        "memberships": 1,
        "posts": 1,
        "reactions": 1,
        "tracked": 1,
        "recommended": 1,
    }
    created = (await services.challenge(BEN)).id
    await services.personal_data.delete("ben")
    await assert_matches_tables(
        services, redis_client, ignore="db_len"
    )  # other users' reactions to their posts are removed at once
    await services.personal_data.delete("ben")
    assert not any((await services.personal_data.export("ben")).values())
    assert (await services.challenges.read(None, created)).creator == ""
    async with services.sql.read() as tx:
        logged = [row.username for table in (DELETE_LOG, INSERT_LOG) for row in await tx.execute(select(table))]
    assert logged
    assert "ben" not in logged
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)
    assert not await redis_client.exists(CLG_SHOWN("ben"))
    assert not await redis_client.exists(CLG_TICKETS(""))


@pytest.mark.parametrize("limit", [1, 100])
async def test_without_posts_nothing_is_recommended(services: ChallengeServices, limit: int) -> None:
    assert await reasons(services, ANA, limit) == {}
