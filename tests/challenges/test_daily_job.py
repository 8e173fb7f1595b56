"""The daily job: its result depends only on the tables and the day."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import Table, delete, insert, select

from plaza.challenges.challenge_deletion import ChallengeDeletion
from plaza.challenges.daily_job.runner import DailyJob
from plaza.challenges.daily_job.source_tables import JobState
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
from plaza.challenges.model import DAY_MS, NewChallengePost, day_number
from plaza.challenges.reminders import ChallengeReminders
from plaza.challenges.tables import CHALLENGE, INSERT_LOG, MEMBER, POST, REACTION, TABLES, TRACKING
from plaza.core.clock import ManualClock
from plaza.core.errors import PlazaError
from plaza.core.timers import Timers
from tests.challenges.conftest import ANA, BEN, CLEO, MAX_POST_AGE, ChallengeServices, assemble, user
from tests.challenges.expected_state import assert_matches_tables, expected, read_documented_keys
from tests.processes import SimulatedCrash


async def create_activity(services: ChallengeServices) -> list[int]:
    """Activity of all kinds over three days. Returns the ids of posts."""
    posts = []
    one, two = await services.joined(BEN, CLEO, category=1, days=4), await services.joined(BEN, category=3)
    for _ in range(3):
        for challenge in (one, two):
            posts.append((await services.post(BEN, challenge)).id)
            await services.track(BEN, challenge)
        await services.post(CLEO, one, is_break=True)
        await services.posts.react(ANA, posts[-1])
        await services.posts.react(CLEO, posts[-2])
        services.clock.advance(days=1)
    await services.posts.remove_reaction(ANA, posts[-1])
    return posts


async def insert_rows_by_hand(services: ChallengeServices, size: int = 30) -> None:
    """Insert rows by SQL as another program would, without updating Valkey."""
    now = services.clock.now_ms()
    today = day_number(now)
    rng = random.Random(size)
    async with services.sql.begin() as tx:
        for _ in range(4):
            values = {"title": "x", "category": rng.randint(1, 5), "is_public": rng.random() < 0.8, "creator": "eve"}
            days = rng.randint(1, 9)
            values |= {"duration": days, "created_ms": now, "ends_day": today + days}
            challenge = (await tx.execute(insert(CHALLENGE).values(values).returning(CHALLENGE.c.id))).scalar_one()
            await tx.execute(insert(MEMBER).values(challenge_id=challenge, username="eve", joined_day=today))
            for number in range(size):
                post = {"challenge_id": challenge, "username": "eve", "text": "x", "is_break": rng.random() < 0.2}
                post |= {"created_ms": now, "day": today - rng.randint(0, 7)}
                id = (await tx.execute(insert(POST).values(post).returning(POST.c.id))).scalar_one()
                reaction = {"post_id": id, "challenge_id": challenge, "created_ms": now}
                await tx.execute(insert(REACTION).values(username=f"user{number % 7}", **reaction))
                tracked = {"challenge_id": challenge, "username": f"user{number % 3}", "day": today - number}
                await tx.execute(insert(TRACKING).values(tracked))


async def test_new_activity_is_in_valkey_before_the_job_runs(services: ChallengeServices, redis_client: Any) -> None:
    await services.daily_job.run()
    await create_activity(services)
    await services.daily_job.run()
    id = await services.joined(BEN)
    post = await services.post(BEN, id)
    await services.posts.react(ANA, post.id)
    await services.track(BEN, id)
    before = await read_documented_keys(redis_client)
    done = await services.daily_job.run()
    assert done.rebuilt == []
    after = await read_documented_keys(redis_client)
    assert {key: value for key, value in after.items() if key != "db_len"} == {
        key: value for key, value in before.items() if key != "db_len"
    }
    await assert_matches_tables(services, redis_client)


async def test_rows_inserted_by_hand_are_read_once(services: ChallengeServices, redis_client: Any) -> None:
    await services.daily_job.run()
    await insert_rows_by_hand(services)
    done = await services.daily_job.run()
    assert (done.rows["post"], done.rows["reaction"], done.rebuilt) == (120, 120, [])
    await assert_matches_tables(services, redis_client)
    again = await services.daily_job.run()
    assert (set(again.rows.values()), again.rebuilt) == ({0}, [])
    await assert_matches_tables(services, redis_client)


async def test_a_rebuild_gives_the_same_as_daily_runs(services: ChallengeServices, redis_client: Any) -> None:
    await create_activity(services)
    await insert_rows_by_hand(services)
    await services.daily_job.run()
    before = await read_documented_keys(redis_client)
    await redis_client.sadd(LIKED_POSTS("unknown"), "77")
    await redis_client.zadd(RECENT_POSTS(4), {"777": 1})
    await redis_client.hset(ON_CLG_INFO(), "7777", "1,1,1,2026-01-01")
    await redis_client.hset(USER_CONTRIBUTION(), "ben", "9,9,9,9,9")
    done = await services.daily_job.run(rebuild_all=True)
    assert done.rebuilt == ["clg", "post", "reaction", "tracking"]
    assert await read_documented_keys(redis_client) == before == await expected(services, services.projections.today())


@pytest.mark.parametrize("days", [5, MAX_POST_AGE + 2, -3])
async def test_slots_are_correct_after_downtime_or_a_clock_set_back(
    services: ChallengeServices, redis_client: Any, days: int
) -> None:
    await create_activity(services)
    await insert_rows_by_hand(services)
    await services.daily_job.run()
    services.clock.advance(days=days)
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)
    services.clock.advance(days=2)
    await services.daily_job.run()
    await assert_matches_tables(services, redis_client)


async def test_an_ended_challenge_leaves_the_pool_and_users_keep_their_reactions(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN, days=2)
    post = await services.post(BEN, id)
    await services.posts.react(ANA, post.id)
    await services.daily_job.run()
    services.clock.advance(days=2)
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)
    assert await redis_client.hlen(POST_CLG_PAIR()) == 0
    assert await redis_client.smembers(LIKED_POSTS("ana")) == {str(post.id)}
    assert await redis_client.zscore(CLGS_PREFERENCE("ana"), id) == 1


async def test_reactions_written_by_an_older_version_are_rebuilt_once(
    services: ChallengeServices, redis_client: Any
) -> None:
    await create_activity(services)
    await services.daily_job.run()
    await redis_client.hdel(DB_CURSOR(COUNTS), "format")
    await redis_client.delete(LIKED_POSTS("cleo"), CLGS_PREFERENCE("cleo"))
    assert (await services.daily_job.run()).rebuilt == ["reaction", "tracking"]
    await assert_matches_tables(services, redis_client)
    assert (await services.daily_job.run()).rebuilt == []


@pytest.mark.parametrize("days", [0, 1])
async def test_a_tracked_day_deleted_by_hand_after_a_request_counted_it_is_removed(
    services: ChallengeServices, redis_client: Any, days: int
) -> None:
    id = await services.joined(BEN)
    await services.daily_job.run()
    today = services.projections.today()
    async with services.sql.begin() as tx:
        row = {"challenge_id": id, "username": "ben", "day": today - 1}
        inserted = (await tx.execute(insert(TRACKING).values(row).returning(TRACKING.c.id))).scalar_one()
    await services.track(BEN, id)
    assert await redis_client.hget(USER_CONTRIBUTION(), "ben") == "2,0,0,0,0"
    async with services.sql.begin() as tx:
        await tx.execute(delete(TRACKING).where(TRACKING.c.id == inserted))
    services.clock.advance(days=days)
    await services.daily_job.run()
    assert await redis_client.hget(USER_CONTRIBUTION(), "ben") == "1,0,0,0,0"
    await assert_matches_tables(services, redis_client)


async def test_a_slot_is_cleared_before_its_number_is_used_again(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN)
    await services.daily_job.run()
    old = await services.post(BEN, id)
    services.clock.advance(days=MAX_POST_AGE)
    new = await services.post(BEN, id)  # before that day's run
    assert await redis_client.zrange(RECENT_POSTS(1), 0, -1) == [str(new.id)]
    assert old.id != new.id
    await services.daily_job.run()
    assert await redis_client.zrange(RECENT_POSTS(1), 0, -1) == [str(new.id)]
    assert int(await redis_client.hget(RS_PARAM(), "day_index")) == services.projections.today() % MAX_POST_AGE


async def test_a_process_with_a_slow_clock_at_midnight_removes_nothing(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN)
    slow = assemble(services.functions, services.sql, ManualClock(services.clock.now_ms()))
    for _ in range(MAX_POST_AGE):  # so that tomorrow's slot has posts
        await services.post(BEN, id)
        for clock in (services.clock, slow.clock):
            clock.advance(days=1)
    services.clock.advance(days=1)
    new = await services.post(BEN, id)
    late = await slow.posts.post(BEN, id, NewChallengePost("Done."), services.operation())
    stored = dict(await redis_client.zrange(RECENT_POSTS(1), 0, -1, withscores=True))
    today = services.projections.today()
    assert (stored[str(new.id)], stored[str(late.id)]) == (today % MAX_POST_AGE, (today - 1) % MAX_POST_AGE)
    await services.daily_job.run()
    await assert_matches_tables(services, redis_client)


@pytest.mark.parametrize("name", ["clg", "reaction", "tracking", "mmbr"])
async def test_rows_deleted_by_hand_are_removed_at_the_next_run(
    services: ChallengeServices, redis_client: Any, name: str
) -> None:
    await create_activity(services)
    await insert_rows_by_hand(services)
    await services.daily_job.run()
    table = TABLES[name]
    async with services.sql.begin() as tx:
        await tx.execute(delete(table).where(table.c.id.in_([1, 2])))
    done = await services.daily_job.run()
    assert done.rebuilt or name == "mmbr"
    await assert_matches_tables(services, redis_client)
    assert (await services.daily_job.run()).rebuilt == []


async def test_rows_deleted_by_plaza_need_no_rebuild(services: ChallengeServices, redis_client: Any) -> None:
    posts = await create_activity(services)
    await services.daily_job.run()
    await services.posts.remove_reaction(CLEO, posts[0])
    await services.posts.react(ANA, posts[3])
    await services.posts.remove_reaction(ANA, posts[3])  # added and removed between two runs
    await services.challenges.leave(CLEO, 1)
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)


async def test_a_job_killed_at_any_step_and_run_again_gives_the_same_result(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_activity(services)
    await services.daily_job.run()
    await insert_rows_by_hand(services, 12)
    await services.posts.remove_reaction(CLEO, 1)
    services.clock.advance(days=1)
    monkeypatch.setattr("plaza.challenges.daily_job.runner.BATCH", 10)
    monkeypatch.setattr("plaza.challenges.recommendation.training.BATCH", 2)
    steps = 0
    while True:
        left = steps
        with monkeypatch.context() as patch:
            _fail_after(patch, services, left)
            try:
                await services.daily_job.run()
                break
            except SimulatedCrash:
                steps += 1
    assert steps > 20
    await assert_matches_tables(services, redis_client)
    trained = await redis_client.get(CLG_NEIGHBOURS(2))
    await services.daily_job.run(rebuild_all=True)
    assert trained == await redis_client.get(CLG_NEIGHBOURS(2))


def _fail_after(patch: pytest.MonkeyPatch, services: ChallengeServices, steps: int) -> None:
    """Raise SimulatedCrash after this number of steps: calls to Valkey and SQL transactions."""
    left = steps
    valkey = services.functions.valkey

    def counted(real: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal left
            # Not the lease, which would expire only after 30 s. Functions are counted once.
            if args and (str(args[0]).startswith("jobs_") or args[0] in ("FCALL", "FCALL_RO")):
                return real(*args, **options)
            if left == 0:
                raise SimulatedCrash
            left -= 1
            return real(*args, **options)

        return run

    patch.setattr(services.functions, "run", counted(services.functions.run))
    for method in ("call", "multi", "batch"):
        patch.setattr(valkey, method, counted(getattr(valkey, method)))
    patch.setattr(services.sql, "begin", counted(services.sql.begin))


async def test_a_lost_job_state_is_rebuilt_from_the_tables(services: ChallengeServices, redis_client: Any) -> None:
    await create_activity(services)
    await services.daily_job.run()
    for key in ("db_len", RS_PARAM()):
        await redis_client.delete(key)
        assert not (await JobState.read(services.functions.valkey)).is_complete
        assert (await services.daily_job.run()).rebuilt
        await assert_matches_tables(services, redis_client)
    for key, field in (("db_len", "post"), (RS_PARAM(), "max_post_age"), (DB_CURSOR(COUNTS), "day")):
        await redis_client.hset(key, field, "not a number")
        assert (await services.daily_job.run()).rebuilt
        await assert_matches_tables(services, redis_client)


async def test_invalid_values_written_by_others_are_ignored_and_removed_by_the_job(
    services: ChallengeServices, redis_client: Any
) -> None:
    await create_activity(services)
    await services.daily_job.run()
    for odd in ("abc", "007", "9" * 20, "²"):
        await redis_client.hset(ON_CLG_INFO(), odd, "x")
        await redis_client.hset(POST_CLG_PAIR(), odd, "x")
        await redis_client.zadd(RECENT_POSTS(3), {odd: 1})
        await redis_client.zadd(CLGS_PREFERENCE("ana"), {odd: 1e6})
        await redis_client.hset(USER_CONTRIBUTION(), mapping={f"{odd} has no name": "1,1,1,1,1", "ana": odd})
    assert (await services.recommender.recommend(ANA, 20)).posts
    assert (await services.daily_job.run()).rebuilt == ["clg", "post", "reaction", "tracking"]
    await assert_matches_tables(services, redis_client)


async def test_any_history_ends_with_what_the_tables_give(services: ChallengeServices, redis_client: Any) -> None:
    """Random activity with runs of the job, deletions by hand and clocks that jump."""
    rng = random.Random(5)
    users = [user(f"p{n}") for n in range(5)]
    challenges, posts = [await services.joined(*users, category=n, days=4 + 3 * n) for n in (1, 2, 5)], [0]
    for _ in range(160):
        actor, challenge = rng.choice(users), rng.choice(challenges)
        operations: list[Callable[[], Awaitable[Any]]] = [
            partial(services.post, actor, challenge, is_break=rng.random() < 0.2),
            partial(services.posts.react, actor, rng.choice(posts[-9:])),
            partial(services.posts.remove_reaction, actor, rng.choice(posts[-9:])),
            partial(services.track, actor, challenge),
            partial(services.joined, *users, category=rng.randint(1, 5), days=rng.randint(1, 9)),
            services.daily_job.run,
        ]
        operation = rng.choices(operations, [6, 6, 3, 4, 1, 2])[0]
        try:
            done: Any = await operation()
        except PlazaError:
            continue
        finally:
            if rng.random() < 0.12:
                services.clock.advance(days=rng.choice([1, 1, 1, 2, 6, -1]))
            if rng.random() < 0.04:
                async with services.sql.begin() as tx:
                    await tx.execute(delete(POST).where(POST.c.id == rng.choice(posts)))
        if isinstance(done, int):
            challenges.append(done)
        elif hasattr(done, "text"):
            posts.append(done.id)
    await services.daily_job.run()
    await assert_matches_tables(services, redis_client)


async def test_a_worker_runs_the_job_at_the_start_of_the_utc_day(
    services: ChallengeServices, redis_client: Any
) -> None:
    reminders = ChallengeReminders(services.projections, services.tracking)
    timer = timers(services.daily_job, ChallengeDeletion(services.projections), reminders)[0]
    worker = Timers(services.functions, services.daily_job._leases, "worker", services.clock)
    await insert_rows_by_hand(services)
    await worker.run_if_due(timer)
    await assert_matches_tables(services, redis_client)
    await insert_rows_by_hand(services)
    services.clock.set((day_number(services.clock.now_ms()) + 1) * DAY_MS - 1)
    await worker.run_if_due(timer)
    assert await redis_client.hget(DB_LEN(), "post") == "120"
    services.clock.advance(seconds=0.001)
    await worker.run_if_due(timer)
    assert await redis_client.hget(DB_LEN(), "post") == "240"
    await assert_matches_tables(services, redis_client)


async def test_a_run_reports_its_progress(services: ChallengeServices) -> None:
    async def steps(*, rebuild_all: bool = False) -> dict[str, int]:
        done: dict[str, int] = {}
        totals: dict[str, int] = {}

        def report(step: str, count: int, total: int) -> None:
            done[step] = done.get(step, 0) + count
            totals[step] = total

        await services.daily_job.run(report, rebuild_all=rebuild_all)
        assert done == totals
        return totals

    await insert_rows_by_hand(services)
    first = await steps()
    assert (first["users with reactions"], first["users with tracked days"]) == (7, 3)
    await insert_rows_by_hand(services, 40)
    more = await steps()
    assert (more["new post rows"], more["new reaction rows"]) == (160, 160)
    services.clock.advance(days=2)
    assert "posts of other days" in await steps()
    assert {"challenges", "posts", "challenges' neighbours"} <= set(await steps(rebuild_all=True))


async def test_concurrent_runs_wait_for_each_other(services: ChallengeServices, redis_client: Any) -> None:
    await insert_rows_by_hand(services)
    other = DailyJob(services.projections, services.daily_job._leases)
    first, second = await asyncio.gather(services.daily_job.run(), other.run())
    assert sorted([first.rebuilt, second.rebuilt], key=len)[0] == []
    await assert_matches_tables(services, redis_client)


@pytest.mark.parametrize("table", [REACTION, TRACKING])
async def test_rows_deleted_by_hand_before_any_run_counted_them_are_removed(
    services: ChallengeServices, redis_client: Any, table: Table
) -> None:
    posts = await create_activity(services)
    await services.daily_job.run()
    dan = user("dan")  # no run has counted any of their rows
    await services.track(dan, await services.joined(dan))
    for post in posts[-2:]:
        await services.posts.react(dan, post)
    async with services.sql.begin() as tx:
        await tx.execute(delete(table).where(table.c.username == "dan"))
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)
    async with services.sql.read() as tx:
        assert (await tx.execute(select(INSERT_LOG))).all() == []


async def test_rows_deleted_by_hand_after_a_killed_run_read_them_are_removed(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await services.daily_job.run()
    await insert_rows_by_hand(services)
    with monkeypatch.context() as patch:
        patch.setattr(services.daily_job, "_finish", _fail)
        with pytest.raises(SimulatedCrash):
            await services.daily_job.run()
    async with services.sql.begin() as tx:
        await tx.execute(delete(REACTION).where(REACTION.c.username == "user3"))
    assert (await services.daily_job.run()).rebuilt == ["reaction"]
    await assert_matches_tables(services, redis_client)


async def _fail(*_: Any) -> None:
    raise SimulatedCrash


async def test_a_post_deleted_by_hand_before_any_run_counted_it_is_removed(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN)
    await services.daily_job.run()
    post = await services.post(BEN, id)
    await services.posts.react(ANA, post.id)
    async with services.sql.begin() as tx:
        await tx.execute(delete(POST).where(POST.c.id == post.id))
    assert (await services.daily_job.run()).rebuilt == ["post", "reaction"]
    await assert_matches_tables(services, redis_client)


@pytest.mark.parametrize("place", ["cluster"], indirect=True)  # with PostgreSQL; SQLite has one writer at a time
async def test_a_row_committed_after_a_row_with_a_higher_id_is_not_skipped(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN)
    await services.daily_job.run()
    now = services.clock.now_ms()
    row = {
        "challenge_id": id,
        "username": "ben",
        "text": "x",
        "is_break": False,
        "created_ms": now,
        "day": day_number(now),
    }
    async with services.sql.begin() as slow:
        await slow.execute(insert(POST).values(row))
        async with services.sql.begin() as quick:
            await quick.execute(insert(POST).values(row))
        run = asyncio.create_task(services.daily_job.run())
        await asyncio.sleep(0.3)  # it reaches the lock, or would be done
    assert (await run).rows["post"] == 2
    assert await services.daily_job.run() == msgspec.structs.replace(await run, rows=dict.fromkeys(TABLES, 0))
    await assert_matches_tables(services, redis_client)
