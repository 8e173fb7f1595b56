"""The daily job: what comes out depends on the tables and the day alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import Table, delete, insert, select

from plaza.challenges.daily_job import Roll
from plaza.challenges.jobs import timers
from plaza.challenges.keys import (
    CLG_NEIGHBOURS,
    CLGS_PREFERENCE,
    COUNTS,
    DB_CURSOR,
    DB_LEN,
    LIKED_POSTS,
    ON_CLG_INFO,
    POST_CLG_PAIR,
    RECENT_POSTS,
    RS_PARAM,
    USER_CONTRIBUTION,
)
from plaza.challenges.model import DAY_MS, NewPost, day_of
from plaza.challenges.table_state import Place
from plaza.challenges.tables import ARRIVAL, BY_NAME, CHALLENGE, MEMBER, POST, REACTION, TRACKING
from plaza.core.clock import ManualClock
from plaza.core.errors import PlazaError
from plaza.core.timers import Timers
from tests.challenges.conftest import ANA, BEN, CLEO, MAX_POST_AGE, World, assemble, person
from tests.challenges.expected_state import assert_true, expected, found


async def lived_in(world: World) -> list[int]:
    """A little of everything, over three days. Returns the ids of posts."""
    posts = []
    one, two = await world.joined(BEN, CLEO, category=1, days=4), await world.joined(BEN, category=3)
    for _ in range(3):
        for challenge in (one, two):
            posts.append((await world.post(BEN, challenge)).id)
            await world.track(BEN, challenge)
        await world.post(CLEO, one, is_break=True)
        await world.posts.react(ANA, posts[-1])
        await world.posts.react(CLEO, posts[-2])
        world.clock.advance(days=1)
    await world.posts.take_back(ANA, posts[-1])
    return posts


async def written_behind_our_back(world: World, size: int = 30) -> None:
    """Rows that another program put into SQL: Valkey has heard of none."""
    now = world.clock.now_ms()
    today = day_of(now)
    dice = random.Random(size)
    async with world.sql.begin() as tx:
        for _ in range(4):
            values = {"title": "x", "category": dice.randint(1, 5), "is_public": dice.random() < 0.8, "creator": "eve"}
            days = dice.randint(1, 9)
            values |= {"duration": days, "created_ms": now, "ends_day": today + days}
            challenge = (await tx.execute(insert(CHALLENGE).values(values).returning(CHALLENGE.c.id))).scalar_one()
            await tx.execute(insert(MEMBER).values(challenge_id=challenge, username="eve", joined_day=today))
            for number in range(size):
                post = {"challenge_id": challenge, "username": "eve", "text": "x", "is_break": dice.random() < 0.2}
                post |= {"created_ms": now, "day": today - dice.randint(0, 7)}
                id = (await tx.execute(insert(POST).values(post).returning(POST.c.id))).scalar_one()
                reaction = {"post_id": id, "challenge_id": challenge, "created_ms": now}
                await tx.execute(insert(REACTION).values(username=f"user{number % 7}", **reaction))
                tracked = {"challenge_id": challenge, "username": f"user{number % 3}", "day": today - number}
                await tx.execute(insert(TRACKING).values(tracked))


async def test_new_activity_does_not_wait_for_the_night(world: World, redis_client: Any) -> None:
    await world.roll.run()
    await lived_in(world)
    await world.roll.run()
    id = await world.joined(BEN)
    post = await world.post(BEN, id)
    await world.posts.react(ANA, post.id)
    await world.track(BEN, id)
    before = await found(redis_client)
    done = await world.roll.run()
    assert done.rebuilt == []
    after = await found(redis_client)
    assert {key: value for key, value in after.items() if key != "db_len"} == {
        key: value for key, value in before.items() if key != "db_len"
    }
    await assert_true(world, redis_client)


async def test_rows_that_others_wrote_are_taken_in_once(world: World, redis_client: Any) -> None:
    await world.roll.run()
    await written_behind_our_back(world)
    done = await world.roll.run()
    assert (done.rows["post"], done.rows["reaction"], done.rebuilt) == (120, 120, [])
    await assert_true(world, redis_client)
    again = await world.roll.run()
    assert (set(again.rows.values()), again.rebuilt) == ({0}, [])
    await assert_true(world, redis_client)


async def test_a_rebuild_is_what_the_rolls_made(world: World, redis_client: Any) -> None:
    await lived_in(world)
    await written_behind_our_back(world)
    await world.roll.run()
    rolled = await found(redis_client)
    await redis_client.sadd(LIKED_POSTS("nobody"), "77")
    await redis_client.zadd(RECENT_POSTS(4), {"777": 1})
    await redis_client.hset(ON_CLG_INFO(), "7777", "1,1,1,2026-01-01")
    await redis_client.hset(USER_CONTRIBUTION(), "ben", "9,9,9,9,9")
    done = await world.roll.run(anew=True)
    assert done.rebuilt == ["clg", "post", "reaction", "tracking"]
    assert await found(redis_client) == rolled == await expected(world, world.derived.today())


@pytest.mark.parametrize("days", [5, MAX_POST_AGE + 2, -3])
async def test_after_days_down_or_a_clock_set_back_every_slot_is_right(
    world: World, redis_client: Any, days: int
) -> None:
    await lived_in(world)
    await written_behind_our_back(world)
    await world.roll.run()
    world.clock.advance(days=days)
    assert (await world.roll.run()).rebuilt == []
    await assert_true(world, redis_client)
    world.clock.advance(days=2)
    await world.roll.run()
    await assert_true(world, redis_client)


async def test_what_hangs_on_a_challenge_that_ended_goes_without_a_rebuild(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN, days=2)
    await world.posts.react(ANA, (await world.post(BEN, id)).id)
    await world.roll.run()
    world.clock.advance(days=2)
    assert (await world.roll.run()).rebuilt == []
    await assert_true(world, redis_client)


async def test_a_slot_is_emptied_before_its_number_is_used_again(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN)
    await world.roll.run()
    old = await world.post(BEN, id)
    world.clock.advance(days=MAX_POST_AGE)
    new = await world.post(BEN, id)  # before the job of that day has run
    assert await redis_client.zrange(RECENT_POSTS(1), 0, -1) == [str(new.id)]
    assert old.id != new.id
    await world.roll.run()
    assert await redis_client.zrange(RECENT_POSTS(1), 0, -1) == [str(new.id)]
    assert int(await redis_client.hget(RS_PARAM(), "day_index")) == world.derived.today() % MAX_POST_AGE


async def test_a_process_whose_clock_is_behind_at_midnight_takes_nothing_out(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN)
    behind = assemble(world.functions, world.sql, ManualClock(world.clock.now_ms()))
    for _ in range(MAX_POST_AGE):  # so that tomorrow's slot is one that somebody used
        await world.post(BEN, id)
        for clock in (world.clock, behind.clock):
            clock.advance(days=1)
    world.clock.advance(days=1)
    new = await world.post(BEN, id)
    late = await behind.posts.post(BEN, id, NewPost("Done."), world.operation())
    held = dict(await redis_client.zrange(RECENT_POSTS(1), 0, -1, withscores=True))
    today = world.derived.today()
    assert (held[str(new.id)], held[str(late.id)]) == (today % MAX_POST_AGE, (today - 1) % MAX_POST_AGE)
    await world.roll.run()
    await assert_true(world, redis_client)


@pytest.mark.parametrize("name", ["clg", "reaction", "tracking", "mmbr"])
async def test_rows_deleted_behind_our_back_are_gone_at_the_next_roll(
    world: World, redis_client: Any, name: str
) -> None:
    await lived_in(world)
    await written_behind_our_back(world)
    await world.roll.run()
    table = BY_NAME[name]
    async with world.sql.begin() as tx:
        await tx.execute(delete(table).where(table.c.id.in_([1, 2])))
    done = await world.roll.run()
    assert done.rebuilt or name == "mmbr"
    await assert_true(world, redis_client)
    assert (await world.roll.run()).rebuilt == []


async def test_what_plaza_itself_removes_needs_no_rebuild(world: World, redis_client: Any) -> None:
    posts = await lived_in(world)
    await world.roll.run()
    await world.posts.take_back(CLEO, posts[0])
    await world.posts.react(ANA, posts[3])
    await world.posts.take_back(ANA, posts[3])  # came and went between two rolls
    await world.challenges.leave(CLEO, 1)
    assert (await world.roll.run()).rebuilt == []
    await assert_true(world, redis_client)


class Killed(Exception):
    """The process is gone at this point."""


async def test_killed_at_every_step_and_run_again_it_is_as_if_nothing_had_happened(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lived_in(world)
    await world.roll.run()
    await written_behind_our_back(world, 12)
    await world.posts.take_back(CLEO, 1)
    world.clock.advance(days=1)
    monkeypatch.setattr("plaza.challenges.daily_job.BATCH", 10)
    monkeypatch.setattr("plaza.challenges.recommendation.training.BATCH", 2)
    steps = 0
    while True:
        left = steps
        with monkeypatch.context() as patch:
            _die_after(patch, world, left)
            try:
                await world.roll.run()
                break
            except Killed:
                steps += 1
    assert steps > 20
    await assert_true(world, redis_client)
    learnt = await redis_client.get(CLG_NEIGHBOURS(2))
    await world.roll.run(anew=True)
    assert learnt == await redis_client.get(CLG_NEIGHBOURS(2))


def _die_after(patch: pytest.MonkeyPatch, world: World, steps: int) -> None:
    """Let so many steps happen, which are calls of Valkey and writes to SQL, and end at the next."""
    left = steps
    valkey = world.functions.valkey

    def counted(real: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal left
            # Not the lease, which would run out by itself in 30 s; and what functions do is counted as theirs.
            if args and (str(args[0]).startswith("jobs_") or args[0] in ("FCALL", "FCALL_RO")):
                return real(*args, **options)
            if left == 0:
                raise Killed
            left -= 1
            return real(*args, **options)

        return run

    patch.setattr(world.functions, "run", counted(world.functions.run))
    for way in ("call", "multi", "batch"):
        patch.setattr(valkey, way, counted(getattr(valkey, way)))
    patch.setattr(world.sql, "begin", counted(world.sql.begin))


async def test_a_place_that_is_lost_is_found_again_from_the_tables(world: World, redis_client: Any) -> None:
    await lived_in(world)
    await world.roll.run()
    for key in ("db_len", RS_PARAM()):
        await redis_client.delete(key)
        assert not (await Place.read(world.functions.valkey)).known
        assert (await world.roll.run()).rebuilt
        await assert_true(world, redis_client)
    for key, field in (("db_len", "post"), (RS_PARAM(), "max_post_age"), (DB_CURSOR(COUNTS), "day")):
        await redis_client.hset(key, field, "somebody else's")
        assert (await world.roll.run()).rebuilt
        await assert_true(world, redis_client)


async def test_what_others_wrote_there_by_mistake_stops_nobody_and_goes_with_the_roll(
    world: World, redis_client: Any
) -> None:
    await lived_in(world)
    await world.roll.run()
    for odd in ("abc", "007", "9" * 20, "²"):
        await redis_client.hset(ON_CLG_INFO(), odd, "x")
        await redis_client.hset(POST_CLG_PAIR(), odd, "x")
        await redis_client.zadd(RECENT_POSTS(3), {odd: 1})
        await redis_client.zadd(CLGS_PREFERENCE("ana"), {odd: 1e6})
        await redis_client.hset(USER_CONTRIBUTION(), mapping={f"{odd} has no name": "1,1,1,1,1", "ana": odd})
    assert (await world.recommender.recommend(ANA, 20)).posts
    assert (await world.roll.run()).rebuilt == ["clg", "post", "reaction", "tracking"]
    await assert_true(world, redis_client)


async def test_any_history_ends_where_the_tables_say(world: World, redis_client: Any) -> None:
    """Random days of people at work, with rolls, deletions behind our back and clocks that jump."""
    dice = random.Random(5)
    people = [person(f"p{n}") for n in range(5)]
    challenges, posts = [await world.joined(*people, category=n, days=4 + 3 * n) for n in (1, 2, 5)], [0]
    for _ in range(160):
        who, where = dice.choice(people), dice.choice(challenges)
        ways: list[Callable[[], Awaitable[Any]]] = [
            partial(world.post, who, where, is_break=dice.random() < 0.2),
            partial(world.posts.react, who, dice.choice(posts[-9:])),
            partial(world.posts.take_back, who, dice.choice(posts[-9:])),
            partial(world.track, who, where),
            partial(world.joined, *people, category=dice.randint(1, 5), days=dice.randint(1, 9)),
            world.roll.run,
        ]
        doing = dice.choices(ways, [6, 6, 3, 4, 1, 2])[0]
        try:
            done: Any = await doing()
        except PlazaError:
            continue
        finally:
            if dice.random() < 0.12:
                world.clock.advance(days=dice.choice([1, 1, 1, 2, 6, -1]))
            if dice.random() < 0.04:
                async with world.sql.begin() as tx:
                    await tx.execute(delete(POST).where(POST.c.id == dice.choice(posts)))
        if isinstance(done, int):
            challenges.append(done)
        elif hasattr(done, "text"):
            posts.append(done.id)
    await world.roll.run()
    await assert_true(world, redis_client)


async def test_a_worker_rolls_as_the_utc_day_begins(world: World, redis_client: Any) -> None:
    (timer,) = timers(world.roll)
    worker = Timers(world.functions, world.roll._leases, "worker", world.clock)
    await written_behind_our_back(world)
    await worker.run_if_due(timer)
    await assert_true(world, redis_client)
    await written_behind_our_back(world)
    world.clock.set((day_of(world.clock.now_ms()) + 1) * DAY_MS - 1)
    await worker.run_if_due(timer)
    assert await redis_client.hget(DB_LEN(), "post") == "120"
    world.clock.advance(seconds=0.001)
    await worker.run_if_due(timer)
    assert await redis_client.hget(DB_LEN(), "post") == "240"
    await assert_true(world, redis_client)


async def test_a_roll_tells_how_much_there_is_to_do_and_does_it(world: World) -> None:
    async def steps(*, anew: bool = False) -> dict[str, int]:
        done: dict[str, int] = {}
        totals: dict[str, int] = {}

        def note(step: str, some: int, total: int) -> None:
            done[step] = done.get(step, 0) + some
            totals[step] = total

        await world.roll.run(note, anew=anew)
        assert done == totals
        return totals

    await written_behind_our_back(world)
    first = await steps()
    assert (first["people with reactions"], first["people with days"]) == (7, 3)
    await written_behind_our_back(world, 40)
    more = await steps()
    assert (more["new post rows"], more["new reaction rows"]) == (160, 160)
    world.clock.advance(days=2)
    assert {"posts of other days", "reactions of other days"} <= set(await steps())
    assert {"challenges", "posts", "challenges' neighbours"} <= set(await steps(anew=True))


async def test_two_that_roll_at_once_wait_for_each_other(world: World, redis_client: Any) -> None:
    await written_behind_our_back(world)
    other = Roll(world.derived, world.roll._leases)
    first, second = await asyncio.gather(world.roll.run(), other.run())
    assert sorted([first.rebuilt, second.rebuilt], key=len)[0] == []
    await assert_true(world, redis_client)


@pytest.mark.parametrize("table", [REACTION, TRACKING])
async def test_rows_deleted_by_hand_before_any_roll_counted_them_are_gone_too(
    world: World, redis_client: Any, table: Table
) -> None:
    posts = await lived_in(world)
    await world.roll.run()
    dan = person("dan")  # of whom no roll has seen anything, so that no count tells
    await world.track(dan, await world.joined(dan))
    for post in posts[-2:]:
        await world.posts.react(dan, post)
    async with world.sql.begin() as tx:
        await tx.execute(delete(table).where(table.c.username == "dan"))
    assert (await world.roll.run()).rebuilt == []
    await assert_true(world, redis_client)
    async with world.sql.read() as tx:
        assert (await tx.execute(select(ARRIVAL))).all() == []


async def test_rows_deleted_by_hand_after_a_roll_that_died_took_them_in_are_gone_too(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.roll.run()
    await written_behind_our_back(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.roll, "_finish", _die)
        with pytest.raises(Killed):
            await world.roll.run()
    async with world.sql.begin() as tx:
        await tx.execute(delete(REACTION).where(REACTION.c.username == "user3"))
    assert (await world.roll.run()).rebuilt == ["reaction"]
    await assert_true(world, redis_client)


async def _die(*_: Any) -> None:
    raise Killed


async def test_a_post_that_was_deleted_by_hand_before_it_was_ever_counted_goes_too(
    world: World, redis_client: Any
) -> None:
    id = await world.joined(BEN)
    await world.roll.run()
    post = await world.post(BEN, id)
    await world.posts.react(ANA, post.id)
    async with world.sql.begin() as tx:
        await tx.execute(delete(POST).where(POST.c.id == post.id))
    assert (await world.roll.run()).rebuilt == ["post", "reaction"]
    await assert_true(world, redis_client)


@pytest.mark.parametrize("place", ["cluster"], indirect=True)  # with PostgreSQL; SQLite has one writer at a time
async def test_a_row_whose_transaction_ends_after_that_of_a_later_one_is_not_passed_by(
    world: World, redis_client: Any
) -> None:
    id = await world.joined(BEN)
    await world.roll.run()
    now = world.clock.now_ms()
    row = {"challenge_id": id, "username": "ben", "text": "x", "is_break": False, "created_ms": now, "day": day_of(now)}
    async with world.sql.begin() as slow:
        await slow.execute(insert(POST).values(row))
        async with world.sql.begin() as quick:
            await quick.execute(insert(POST).values(row))
        rolling = asyncio.create_task(world.roll.run())
        await asyncio.sleep(0.3)  # it comes to where it waits, or is done
    assert (await rolling).rows["post"] == 2
    assert await world.roll.run() == msgspec.structs.replace(await rolling, rows=dict.fromkeys(BY_NAME, 0))
    await assert_true(world, redis_client)
