"""Recommendations are recent, have a reason, and never contain excluded posts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import delete, select

from plaza.challenges.keys import CLG_NEIGHBOURS, CLG_POPULAR, CLG_SHOWN, CLG_TICKETS
from plaza.challenges.recommendation.recommender import MAX_DAYS_SHOWN, Recommender
from plaza.challenges.tables import DELETE_LOG, INSERT_LOG, POST
from plaza.core.auth import Actor
from plaza.core.valkey import Valkey
from plaza.social.keys import USER_BLOCKED, USER_BLOCKED_BY
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, World, user
from tests.challenges.expected_state import assert_matches_tables
from tests.round_trips import count_round_trips


async def reasons(world: World, viewer: Actor, limit: int = 20) -> dict[int, str]:
    """The reasons of a viewer's recommendations by post id."""
    found = await world.recommender.recommend(viewer, limit)
    return {recommended.post.id: recommended.reason for recommended in found.posts}


async def test_a_new_user_gets_popular_and_new_posts(world: World) -> None:
    fit, mind = await world.joined(BEN, category=1), await world.joined(CLEO, category=3)
    popular, fresh = await world.post(BEN, fit), await world.post(CLEO, mind)
    for name in ("dan", "eve"):
        await world.posts.react(user(name), popular.id)
    assert await reasons(world, user("newcomer")) == {popular.id: "Popular: 2 reactions", fresh.id: "New in mind"}


async def test_popular_posts_are_found_among_many_newer_ones(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.PER_CATEGORY", 1)
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.RANDOM_PER_CATEGORY", 0)
    id = await world.joined(BEN, CLEO)
    popular = await world.post(CLEO, id)
    for name in ("dan", "eve"):
        await world.posts.react(user(name), popular.id)
    newest = [await world.post(BEN, id) for _ in range(3)][-1]
    await world.posts.react(ANA, newest.id)
    await world.daily_job.run()
    assert await redis_client.zrange(CLG_POPULAR(), 0, -1, withscores=True) == [
        (str(newest.id), 1),
        (str(popular.id), 2),
    ]
    assert await reasons(world, user("newcomer")) == {
        popular.id: "Popular: 2 reactions",
        newest.id: "New in fitness",
    }
    await world.posts.remove_reaction(ANA, newest.id)
    await world.personal_data.delete("cleo")
    await world.daily_job.run()
    assert not await redis_client.exists(CLG_POPULAR())


async def test_days_in_a_category_and_reactions_in_a_challenge_are_reasons(world: World) -> None:
    fit, mind, food = [await world.joined(ANA, BEN, CLEO, category=n) for n in (1, 3, 2)]
    await world.track(ANA, fit)
    run, think, cook, bake = [await world.post(BEN, id) for id in (fit, mind, food, food)]
    await world.posts.react(ANA, cook.id)
    assert await reasons(world, ANA) == {
        run.id: "1 day in fitness",
        bake.id: "You reacted once in Run every day",
        think.id: "New in mind",
    }


async def test_the_daily_job_computes_similar_challenges(world: World, redis_client: Any) -> None:
    run, swim, bake, knit = [await world.challenge(title=title) for title in ("Run", "Swim", "Bake", "Knit")]
    secret = await world.challenge(public=False)
    for one in (run, swim, secret):
        await world.challenges.join(ANA, one.id)
    posts = {one.id: (await world.post(ANA, one.id)).id for one in (run, swim)}
    for n in range(4):  # runners swim, cooks knit
        await world.challenges.join(user(f"runner{n}"), run.id)
        await world.posts.react(user(f"runner{n}"), posts[swim.id])
        for one in (bake, knit):
            await world.challenges.join(user(f"cook{n}"), one.id)
    assert (await world.daily_job.run()).fitted == 4
    assert (await redis_client.get(CLG_NEIGHBOURS(run.id))).split(" ")[0] == str(swim.id)
    assert not await redis_client.exists(CLG_NEIGHBOURS(secret.id))
    assert 0 < await redis_client.ttl(CLG_NEIGHBOURS(run.id)) <= 7 * 86_400

    await world.challenges.join(BEN, run.id)
    assert (await reasons(world, BEN))[posts[swim.id]] == "Because you joined Run"
    await world.posts.react(CLEO, posts[run.id])
    assert (await reasons(world, CLEO))[posts[swim.id]] == "Because you reacted in Run"


async def test_neighbours_follow_the_tables_and_are_deleted_with_their_challenge(
    world: World, redis_client: Any
) -> None:
    short, long = await world.joined(ANA, BEN, days=2), await world.joined(ANA, BEN)
    first = await world.daily_job.run()
    assert (first.fitted, (await world.daily_job.run()).fitted) == (
        2,
        0,
    )  # the same rows need no training
    await world.challenges.join(CLEO, short)
    assert (await world.daily_job.run()).fitted == 2
    trained = await redis_client.get(CLG_NEIGHBOURS(long))
    assert (await world.daily_job.run(rebuild_all=True)).fitted == 2
    assert await redis_client.get(CLG_NEIGHBOURS(long)) == trained
    world.clock.advance(days=2)
    assert (await world.daily_job.run()).fitted == 0
    assert [await redis_client.exists(CLG_NEIGHBOURS(id)) for id in (short, long)] == [0, 0]


async def test_the_number_of_remembered_posts_is_limited(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.MAX_REMEMBERED", 3)
    id = await world.joined(BEN)
    for _ in range(2):
        posts = {str((await world.post(BEN, id)).id) for _ in range(2)}
        await reasons(world, ANA, 2)
        world.clock.advance(days=1)
    remembered = set(await redis_client.hgetall(CLG_SHOWN("ana")))
    assert len(remembered) == 3
    assert posts < remembered


class SocialBlocks:
    """The block lists of social, as the composition root passes them."""

    def block_list_keys(self, username: str) -> list[str]:
        return [USER_BLOCKED(username), USER_BLOCKED_BY(username)]


async def test_own_reacted_blocked_private_ended_old_and_break_posts_are_never_recommended(
    world: World, redis_client: Any
) -> None:
    open_ = await world.joined(ANA, BEN, CLEO)
    closed = await world.challenge(public=False)
    for member in (ANA, ROOT):
        await world.challenges.join(member, closed.id)
    await world.post(BEN, open_)  # will be too old
    world.clock.advance(days=4)
    brief = await world.joined(BEN, days=1)
    await world.post(BEN, brief)  # will have ended
    world.clock.advance(days=1)
    await world.post(ANA, open_)
    for member in (ANA, ROOT, ROOT):
        secret = await world.post(member, closed.id)
    await world.posts.react(ANA, secret.id)  # so that this challenge is one of the viewer's
    await world.post(BEN, open_, is_break=True)
    reacted, _, good = [await world.post(who, open_) for who in (BEN, CLEO, BEN)]
    await world.posts.react(ANA, reacted.id)

    world.recommender = Recommender(world.projections, SocialBlocks())
    await redis_client.zadd(USER_BLOCKED_BY("ana"), {"cleo": 1})
    assert set(await reasons(world, ANA)) == {good.id}
    await world.daily_job.run()
    assert set(await reasons(world, ANA)) == {good.id}


async def test_recommendations_change_at_once(world: World) -> None:
    id = await world.joined(ANA, BEN, category=4)
    post = await world.post(BEN, id)
    assert await reasons(world, ANA) == {post.id: "New in learning"}
    await world.track(ANA, id)
    assert await reasons(world, ANA) == {post.id: "1 day in learning"}
    await world.posts.react(ANA, post.id)
    assert await reasons(world, ANA) == {}
    await world.posts.remove_reaction(ANA, post.id)
    assert set(await reasons(world, ANA)) == {post.id}


async def test_recommendations_have_several_authors_and_recent_posts_first(world: World) -> None:
    one, two = await world.joined(BEN, CLEO), await world.joined(CLEO)
    await world.post(CLEO, two)
    world.clock.advance(days=1)
    mine = [(await world.post(BEN, one)).id for _ in range(6)]
    found = await world.recommender.recommend(ANA, 3)
    assert [r.post.username for r in found.posts].count("ben") == 2
    assert found.posts[0].post.id == mine[-1]
    assert len((await world.recommender.recommend(ANA, 20)).posts) == 7  # all, if there are no other authors


async def test_excluded_posts_are_replaced_by_the_next(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All posts are cached after the first response; most are excluded in the second."""
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.MIN_LOOKUP", 2)
    world.recommender = Recommender(world.projections, SocialBlocks())
    id = await world.joined(ANA, BEN, CLEO)
    posts = [(await world.post(who, id)).id for who in (BEN, CLEO, BEN, CLEO, BEN, ANA)]
    assert set(await reasons(world, ANA)) == set(posts[:5])
    for post in posts[2:4]:
        await world.posts.react(ANA, post)
    async with world.sql.begin() as tx:
        await tx.execute(delete(POST).where(POST.c.id == posts[4]))
    assert set(await reasons(world, ANA, 1)) == {posts[1]}
    await redis_client.zadd(USER_BLOCKED("ana"), {"cleo": 1})
    assert set(await reasons(world, ANA, 2)) == {posts[0]}


async def test_the_candidate_cache_is_limited_and_the_candidates_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.candidate_cache.MAX_CACHED", 10)
    monkeypatch.setattr("plaza.challenges.recommendation.candidate_cache.READ_BATCH", 4)
    id = await world.joined(BEN)
    posts = {(await world.post(BEN, id)).id for _ in range(15)}
    for _ in range(2):
        assert set(await reasons(world, ANA)) == posts
    assert len(world.recommender._candidates._cached) <= 10


async def test_a_post_is_shown_on_a_limited_number_of_days(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN)
    post = await world.post(BEN, id)
    for _ in range(MAX_DAYS_SHOWN):
        assert post.id in await reasons(world, ANA)
        assert post.id in await reasons(world, ANA)  # a second request on the same day does not count
        world.clock.advance(days=1)
    assert post.id not in await reasons(world, ANA)
    new = await world.post(BEN, id)
    world.clock.advance(days=4)
    assert set(await reasons(world, ANA)) == {new.id}
    world.clock.advance(days=4)
    newer = await world.post(BEN, id)
    await reasons(world, ANA)
    assert set(await redis_client.hgetall(CLG_SHOWN("ana"))) == {str(new.id), str(newer.id)}


async def test_recommendations_take_at_most_two_round_trips(world: World, valkey: Valkey) -> None:
    id, _ = await world.joined(ANA, BEN), await world.joined(ANA, BEN)
    for _ in range(5):
        await world.post(BEN, id)
    await world.daily_job.run()

    world.recommender = Recommender(world.projections, SocialBlocks())
    assert await count_round_trips(valkey, world.recommender.recommend(ANA, 20)) == 2
    assert await count_round_trips(valkey, world.recommender.recommend(ANA, 20)) == 1


async def test_concurrent_reactions_and_removals_leave_what_sql_has(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN)
    posts = [(await world.post(BEN, id)).id for _ in range(3)]
    await world.daily_job.run()
    doing = [
        act(ANA, post) for _ in range(4) for post in posts for act in (world.posts.react, world.posts.remove_reaction)
    ]
    await asyncio.gather(*doing)
    await assert_matches_tables(world, redis_client, ignore="db_len")


async def test_of_two_concurrent_writers_the_later_reader_writes_last(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await world.joined(BEN)
    post = await world.post(BEN, id)
    await world.daily_job.run()
    call = world.functions.run

    async def overtaken(command: str, *args: Any) -> Any:
        if command == "challenges_write_reactions":  # SQL has been read, and the write follows
            monkeypatch.setattr(world.functions, "run", call)
            await world.posts.remove_reaction(ANA, post.id)
        return await call(command, *args)

    monkeypatch.setattr(world.functions, "run", overtaken)
    await world.posts.react(ANA, post.id)
    await assert_matches_tables(world, redis_client, ignore="db_len")


async def test_of_two_concurrent_writes_of_tracked_days_the_larger_number_stays(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await world.joined(ANA), await world.joined(ANA)
    await world.daily_job.run()
    call = world.functions.run

    async def overtaken(command: str, *args: Any) -> Any:
        if command == "challenges_write_contributions":
            monkeypatch.setattr(world.functions, "run", call)
            await world.track(ANA, two)
        return await call(command, *args)

    monkeypatch.setattr(world.functions, "run", overtaken)
    await world.track(ANA, one)
    await assert_matches_tables(world, redis_client, ignore="db_len")


async def test_deleting_a_user_leaves_no_data_and_needs_no_rebuild(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN, CLEO)
    post, other = await world.post(BEN, id), await world.post(CLEO, id)
    await world.posts.react(CLEO, post.id)
    await world.posts.react(BEN, other.id)
    await world.track(BEN, id)
    await world.post(CLEO, id)
    await reasons(world, BEN)
    await world.daily_job.run()
    export = await world.personal_data.export("ben")
    assert {kind: len(found) for kind, found in export.items()} == {
        "challenges": 0,
        "memberships": 1,
        "posts": 1,
        "reactions": 1,
        "tracked": 1,
        "recommended": 1,
    }
    created = (await world.challenge(BEN)).id
    await world.personal_data.delete("ben")
    await assert_matches_tables(
        world, redis_client, ignore="db_len"
    )  # other users' reactions to their posts are removed at once
    await world.personal_data.delete("ben")
    assert not any((await world.personal_data.export("ben")).values())
    assert (await world.challenges.read(None, created)).creator == ""
    async with world.sql.read() as tx:
        logged = [row.username for table in (DELETE_LOG, INSERT_LOG) for row in await tx.execute(select(table))]
    assert logged
    assert "ben" not in logged
    assert (await world.daily_job.run()).rebuilt == []
    await assert_matches_tables(world, redis_client)
    assert not await redis_client.exists(CLG_SHOWN("ben"))
    assert not await redis_client.exists(CLG_TICKETS(""))


@pytest.mark.parametrize("limit", [1, 100])
async def test_without_posts_nothing_is_recommended(world: World, limit: int) -> None:
    assert await reasons(world, ANA, limit) == {}
