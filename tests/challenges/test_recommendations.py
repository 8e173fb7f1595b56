"""What is recommended: recent, for a reason, and never what must not be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import delete, select

from plaza.challenges.keys import CLG_NEIGHBOURS, CLG_POPULAR, CLG_SHOWN, CLG_TURN
from plaza.challenges.recommendation.recommender import MOST_DAYS_SHOWN, Recommender
from plaza.challenges.tables import ARRIVAL, POST, REMOVAL
from plaza.core.auth import Actor
from plaza.core.valkey import Valkey
from plaza.social.keys import USER_BLOCKED, USER_BLOCKED_BY
from tests.challenges.conftest import ANA, BEN, CLEO, ROOT, World, person
from tests.challenges.expected_state import assert_true
from tests.round_trips import count_round_trips


async def reasons(world: World, who: Actor, limit: int = 20) -> dict[int, str]:
    found = await world.recommender.recommend(who, limit)
    return {one.post.id: one.reason for one in found.posts}


async def test_who_has_done_nothing_yet_gets_popular_and_fresh_posts(world: World) -> None:
    fit, mind = await world.joined(BEN, category=1), await world.joined(CLEO, category=3)
    popular, fresh = await world.post(BEN, fit), await world.post(CLEO, mind)
    for name in ("dan", "eve"):
        await world.posts.react(person(name), popular.id)
    assert await reasons(world, person("newcomer")) == {popular.id: "Popular: 2 reactions", fresh.id: "New in mind"}


async def test_what_is_popular_is_found_among_any_number_of_newer_posts(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.PER_CATEGORY", 1)
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.ANY_OF_CATEGORY", 0)
    id = await world.joined(BEN, CLEO)
    popular = await world.post(CLEO, id)
    for name in ("dan", "eve"):
        await world.posts.react(person(name), popular.id)
    newest = [await world.post(BEN, id) for _ in range(3)][-1]
    await world.posts.react(ANA, newest.id)
    await world.roll.run()
    assert await redis_client.zrange(CLG_POPULAR(), 0, -1, withscores=True) == [
        (str(newest.id), 1),
        (str(popular.id), 2),
    ]
    assert await reasons(world, person("newcomer")) == {
        popular.id: "Popular: 2 reactions",
        newest.id: "New in fitness",
    }
    await world.posts.take_back(ANA, newest.id)
    await world.people.delete("cleo")
    await world.roll.run()
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


async def test_the_daily_job_learns_what_goes_together(world: World, redis_client: Any) -> None:
    run, swim, bake, knit = [await world.challenge(title=title) for title in ("Run", "Swim", "Bake", "Knit")]
    secret = await world.challenge(public=False)
    for one in (run, swim, secret):
        await world.challenges.join(ANA, one.id)
    posts = {one.id: (await world.post(ANA, one.id)).id for one in (run, swim)}
    for n in range(4):  # who runs swims, and who bakes knits
        await world.challenges.join(person(f"runner{n}"), run.id)
        await world.posts.react(person(f"runner{n}"), posts[swim.id])
        for one in (bake, knit):
            await world.challenges.join(person(f"cook{n}"), one.id)
    assert (await world.roll.run()).fitted == 4
    assert (await redis_client.get(CLG_NEIGHBOURS(run.id))).split(" ")[0] == str(swim.id)
    assert not await redis_client.exists(CLG_NEIGHBOURS(secret.id))
    assert 0 < await redis_client.ttl(CLG_NEIGHBOURS(run.id)) <= 7 * 86_400

    await world.challenges.join(BEN, run.id)
    assert (await reasons(world, BEN))[posts[swim.id]] == "Because you joined Run"
    await world.posts.react(CLEO, posts[run.id])
    assert (await reasons(world, CLEO))[posts[swim.id]] == "Because you reacted in Run"


async def test_a_model_follows_from_the_tables_and_goes_with_its_challenge(world: World, redis_client: Any) -> None:
    short, long = await world.joined(ANA, BEN, days=2), await world.joined(ANA, BEN)
    first = await world.roll.run()
    assert (first.fitted, (await world.roll.run()).fitted) == (
        2,
        0,
    )  # from the same rows, there is nothing new to learn
    await world.challenges.join(CLEO, short)
    assert (await world.roll.run()).fitted == 2
    rolled = await redis_client.get(CLG_NEIGHBOURS(long))
    assert (await world.roll.run(anew=True)).fitted == 2
    assert await redis_client.get(CLG_NEIGHBOURS(long)) == rolled
    world.clock.advance(days=2)
    assert (await world.roll.run()).fitted == 0
    assert [await redis_client.exists(CLG_NEIGHBOURS(id)) for id in (short, long)] == [0, 0]


async def test_what_was_shown_is_remembered_to_a_bound(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.MOST_REMEMBERED", 3)
    id = await world.joined(BEN)
    for _ in range(2):
        posts = {str((await world.post(BEN, id)).id) for _ in range(2)}
        await reasons(world, ANA, 2)
        world.clock.advance(days=1)
    remembered = set(await redis_client.hgetall(CLG_SHOWN("ana")))
    assert len(remembered) == 3
    assert posts < remembered


class Blocking:
    """Who is hidden from anybody, as the composition root has social say it."""

    def block_list_keys(self, username: str) -> list[str]:
        return [USER_BLOCKED(username), USER_BLOCKED_BY(username)]


async def test_never_own_reacted_blocked_private_ended_old_or_a_break(world: World, redis_client: Any) -> None:
    open_ = await world.joined(ANA, BEN, CLEO)
    closed = await world.challenge(public=False)
    for member in (ANA, ROOT):
        await world.challenges.join(member, closed.id)
    await world.post(BEN, open_)  # too old, soon
    world.clock.advance(days=4)
    brief = await world.joined(BEN, days=1)
    await world.post(BEN, brief)  # ended, soon
    world.clock.advance(days=1)
    await world.post(ANA, open_)
    for member in (ANA, ROOT, ROOT):
        secret = await world.post(member, closed.id)
    await world.posts.react(ANA, secret.id)  # so that this challenge is one of her own
    await world.post(BEN, open_, is_break=True)
    reacted, _, good = [await world.post(who, open_) for who in (BEN, CLEO, BEN)]
    await world.posts.react(ANA, reacted.id)

    world.recommender = Recommender(world.derived, Blocking())
    await redis_client.zadd(USER_BLOCKED_BY("ana"), {"cleo": 1})
    assert set(await reasons(world, ANA)) == {good.id}
    await world.roll.run()
    assert set(await reasons(world, ANA)) == {good.id}


async def test_recommendations_follow_at_once(world: World) -> None:
    id = await world.joined(ANA, BEN, category=4)
    post = await world.post(BEN, id)
    assert await reasons(world, ANA) == {post.id: "New in learning"}
    await world.track(ANA, id)
    assert await reasons(world, ANA) == {post.id: "1 day in learning"}
    await world.posts.react(ANA, post.id)
    assert await reasons(world, ANA) == {}
    await world.posts.take_back(ANA, post.id)
    assert set(await reasons(world, ANA)) == {post.id}


async def test_an_answer_has_many_voices_and_the_recent_come_first(world: World) -> None:
    one, two = await world.joined(BEN, CLEO), await world.joined(CLEO)
    await world.post(CLEO, two)
    world.clock.advance(days=1)
    mine = [(await world.post(BEN, one)).id for _ in range(6)]
    found = await world.recommender.recommend(ANA, 3)
    assert [r.post.username for r in found.posts].count("ben") == 2
    assert found.posts[0].post.id == mine[-1]
    assert len((await world.recommender.recommend(ANA, 20)).posts) == 7  # with nobody else left, all of them


async def test_whatever_must_not_be_shown_makes_room_for_the_next(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is at hand by the first answer, and most of it is not for her by the second."""
    monkeypatch.setattr("plaza.challenges.recommendation.recommender.LOOKED_UP", 2)
    world.recommender = Recommender(world.derived, Blocking())
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


async def test_few_posts_stay_at_hand_and_any_number_can_be_chosen_from(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plaza.challenges.recommendation.candidates.MOST", 10)
    monkeypatch.setattr("plaza.challenges.recommendation.candidates.STEP", 4)
    id = await world.joined(BEN)
    posts = {(await world.post(BEN, id)).id for _ in range(15)}
    for _ in range(2):
        assert set(await reasons(world, ANA)) == posts
    assert len(world.recommender._candidates._at_hand) <= 10


async def test_what_was_shown_is_not_shown_for_ever(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN)
    post = await world.post(BEN, id)
    for _ in range(MOST_DAYS_SHOWN):
        assert post.id in await reasons(world, ANA)
        assert post.id in await reasons(world, ANA)  # reading again on the same day does not use it up
        world.clock.advance(days=1)
    assert post.id not in await reasons(world, ANA)
    new = await world.post(BEN, id)
    world.clock.advance(days=4)
    assert set(await reasons(world, ANA)) == {new.id}
    world.clock.advance(days=4)
    newer = await world.post(BEN, id)
    await reasons(world, ANA)
    assert set(await redis_client.hgetall(CLG_SHOWN("ana"))) == {str(new.id), str(newer.id)}


async def test_two_round_trips_at_most(world: World, valkey: Valkey) -> None:
    id, _ = await world.joined(ANA, BEN), await world.joined(ANA, BEN)
    for _ in range(5):
        await world.post(BEN, id)
    await world.roll.run()

    world.recommender = Recommender(world.derived, Blocking())
    assert await count_round_trips(valkey, world.recommender.recommend(ANA, 20)) == 2
    assert await count_round_trips(valkey, world.recommender.recommend(ANA, 20)) == 1


async def test_reacting_and_taking_back_at_once_leaves_what_sql_says(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN)
    posts = [(await world.post(BEN, id)).id for _ in range(3)]
    await world.roll.run()
    doing = [act(ANA, post) for _ in range(4) for post in posts for act in (world.posts.react, world.posts.take_back)]
    await asyncio.gather(*doing)
    await assert_true(world, redis_client, but="db_len")


async def test_of_two_that_write_of_a_person_the_one_that_read_later_has_the_last_word(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await world.joined(BEN)
    post = await world.post(BEN, id)
    await world.roll.run()
    call = world.functions.run

    async def overtaken(verb: str, *args: Any) -> Any:
        if verb == "challenges_people":  # what SQL said is read, and about to be written
            monkeypatch.setattr(world.functions, "run", call)
            await world.posts.take_back(ANA, post.id)
        return await call(verb, *args)

    monkeypatch.setattr(world.functions, "run", overtaken)
    await world.posts.react(ANA, post.id)
    await assert_true(world, redis_client, but="db_len")


async def test_of_two_that_write_a_persons_days_the_larger_number_stays(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await world.joined(ANA), await world.joined(ANA)
    await world.roll.run()
    call = world.functions.run

    async def overtaken(verb: str, *args: Any) -> Any:
        if verb == "challenges_contribution":
            monkeypatch.setattr(world.functions, "run", call)
            await world.track(ANA, two)
        return await call(verb, *args)

    monkeypatch.setattr(world.functions, "run", overtaken)
    await world.track(ANA, one)
    await assert_true(world, redis_client, but="db_len")


async def test_who_leaves_plaza_leaves_no_trace_and_no_rebuild(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN, CLEO)
    post, other = await world.post(BEN, id), await world.post(CLEO, id)
    await world.posts.react(CLEO, post.id)
    await world.posts.react(BEN, other.id)
    await world.track(BEN, id)
    await world.post(CLEO, id)
    await reasons(world, BEN)
    await world.roll.run()
    held = await world.people.export("ben")
    assert {kind: len(found) for kind, found in held.items()} == {
        "challenges": 0,
        "memberships": 1,
        "posts": 1,
        "reactions": 1,
        "tracked": 1,
        "recommended": 1,
    }
    begun = (await world.challenge(BEN)).id
    await world.people.delete("ben")
    await assert_true(world, redis_client, but="db_len")  # what others had reacted to of theirs is gone at once
    await world.people.delete("ben")
    assert not any((await world.people.export("ben")).values())
    assert (await world.challenges.read(None, begun)).creator == ""
    async with world.sql.read() as tx:
        notes = [row.username for table in (REMOVAL, ARRIVAL) for row in await tx.execute(select(table))]
    assert notes
    assert "ben" not in notes
    assert (await world.roll.run()).rebuilt == []
    await assert_true(world, redis_client)
    assert not await redis_client.exists(CLG_SHOWN("ben"))
    assert not await redis_client.exists(CLG_TURN(""))


@pytest.mark.parametrize("limit", [1, 100])
async def test_an_empty_plaza_recommends_nothing(world: World, limit: int) -> None:
    assert await reasons(world, ANA, limit) == {}
