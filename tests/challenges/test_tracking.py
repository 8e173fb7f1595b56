"""Tracked days: amounts, undoing, streaks and leaderboards."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import insert, text, update
from sqlalchemy.dialects import sqlite

from plaza.challenges.daily_job import runner
from plaza.challenges.keys import DB_LEN, USER_CONTRIBUTION
from plaza.challenges.leaderboard import FIRST_MEMBERS, TOTALS
from plaza.challenges.model import (
    AlreadyTracked,
    LeaderboardQuery,
    NewTracking,
    NotTracked,
    PrivateChallenge,
    iso_date,
    to_thousandths,
)
from plaza.challenges.tables import MEMBER, TRACKING
from plaza.core.errors import Gone, Invalid, NotFound
from plaza.core.paging import Page
from plaza.social.keys import USER_BLOCKED
from tests.challenges.conftest import ANA, BEN, CLEO, ChallengeServices, user
from tests.challenges.expected_state import assert_matches_tables


async def test_a_day_that_is_taken_back_counts_no_more(services: ChallengeServices, redis_client: Any) -> None:
    id = await services.joined(BEN, category=2)
    await services.track(BEN, id)
    await services.daily_job.run()
    assert await redis_client.hget(USER_CONTRIBUTION(), "ben") == "0,1,0,0,0"
    left = await services.tracking.untrack(BEN, id)
    assert (left.days, left.current_streak, left.last_date, left.member) == (0, 0, None, True)
    assert await redis_client.hget(USER_CONTRIBUTION(), "ben") is None
    with pytest.raises(NotTracked):
        await services.tracking.untrack(BEN, id)
    assert await redis_client.hget(DB_LEN(), "tracking") == "1", "the count of the last run"
    for _ in range(2):
        done = await services.daily_job.run()
        assert (done.rebuilt, done.db_len["tracking"]) == ([], 0)
    await services.track(BEN, id)
    await services.daily_job.run()
    await assert_matches_tables(services, redis_client)


async def test_the_daily_job_completes_an_undo_that_was_interrupted(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once of a day that a run has counted, once of a day that no run has counted."""

    class Crash(Exception):
        pass

    async def crash(*_: Any) -> None:
        raise Crash

    id = await services.joined(BEN, ANA)
    await services.track(BEN, id)
    await services.daily_job.run()
    await services.track(ANA, id)
    for actor in (ANA, BEN):
        with monkeypatch.context() as broken, suppress(Crash):
            broken.setattr(services.projections.contributions, "update", crash)
            await services.tracking.untrack(actor, id)
    assert await redis_client.hlen(USER_CONTRIBUTION()) == 2, "not updated yet"
    with monkeypatch.context() as broken, suppress(Crash):
        broken.setattr(runner.DailyJob, "_finish", crash)
        await services.daily_job.run()
    for _ in range(2):
        assert (await services.daily_job.run()).rebuilt == []
        await assert_matches_tables(services, redis_client)


async def test_days_of_former_members_and_of_ended_challenges_can_be_taken_back(services: ChallengeServices) -> None:
    id = await services.joined(BEN, CLEO, days=2)
    await services.track(BEN, id)
    await services.track(CLEO, id)
    await services.challenges.leave(BEN, id)
    assert (await services.tracking.progress(BEN, id)).days == 1
    left = await services.tracking.untrack(BEN, id)
    assert (left.member, left.days) == (False, 0)
    day = iso_date(services.projections.today())
    services.clock.advance(days=3)
    assert (await services.tracking.untrack(CLEO, id, day)).days == 0
    with pytest.raises(Invalid):
        await services.tracking.untrack(CLEO, id, "2023-02-30")
    private = (await services.challenge(public=False)).id
    for work in (services.tracking.untrack, services.tracking.progress):
        with pytest.raises(PrivateChallenge):
            await work(BEN, private)
    with pytest.raises(NotFound):
        await services.tracking.page(BEN, 99, Page())


async def test_streaks_are_days_in_a_row_up_to_yesterday_or_today(services: ChallengeServices) -> None:
    id = await services.joined(BEN)
    first = services.projections.today()
    services.clock.advance(days=9)

    async def streaks() -> tuple[int, int, int]:
        found = await services.tracking.progress(BEN, id)
        return found.days, found.current_streak, found.longest_streak

    for day in (0, 1, 2, 4, 8):
        await services.track(BEN, id, iso_date(first + day))
    assert await streaks() == (5, 1, 3)
    await services.track(BEN, id)
    assert await streaks() == (6, 2, 3)
    await services.track(BEN, id, iso_date(first + 3))  # joins two runs
    assert await streaks() == (7, 2, 5)
    services.clock.advance(days=1)
    assert await streaks() == (7, 2, 5)
    services.clock.advance(days=1)
    assert await streaks() == (7, 0, 5)
    await services.tracking.untrack(BEN, id, iso_date(first + 1))
    assert await streaks() == (6, 0, 3)
    await services.challenges.leave(BEN, id)
    assert (await services.tracking.progress(BEN, id)).longest_streak == 3
    await services.challenges.join(BEN, id)
    assert await streaks() == (6, 0, 3), "what was tracked before counts again"


async def test_amounts_add_up_exactly(services: ChallengeServices) -> None:
    id = await services.joined(BEN, unit="km")
    services.clock.advance(days=10)
    for ago in range(10):
        await services.track(BEN, id, iso_date(services.projections.today() - ago), amount=0.1)
    await services.track(BEN, id, iso_date(services.projections.today() - 10))
    found = await services.tracking.progress(BEN, id)
    assert (found.days, found.amount) == (11, 1.0), "ten times 0.1 is 1, not 0.9999999999999999"
    days = (await services.tracking.page(BEN, id, Page(limit=2))).days
    assert [(day.date, day.amount) for day in days] == [
        (iso_date(services.projections.today() - 10), None),
        (iso_date(services.projections.today() - 9), 0.1),
    ]
    for wrong in (0.0005, 0.0, -1.0, 1_000_000.001, float("nan"), float("inf")):
        with pytest.raises(Invalid):
            to_thousandths(wrong)
    assert [to_thousandths(x) for x in (999_999.999, 1_000_000, 4.35, 1.005)] == [999_999_999, 10**9, 4350, 1005]
    plain = await services.joined(BEN)
    with pytest.raises(Invalid, match="no unit"):
        await services.track(BEN, plain, amount=1.0)


async def test_concurrent_changes_leave_exact_totals(services: ChallengeServices, redis_client: Any) -> None:
    id = await services.joined(BEN, unit="km")
    today = services.projections.today()
    services.clock.advance(days=5)
    dates = [iso_date(today + day) for day in range(6)]

    async def change(date: str, index: int) -> None:
        with suppress(AlreadyTracked, NotTracked):
            if index % 3 == 1:
                await services.tracking.untrack(BEN, id, date)
            else:
                await services.track(BEN, id, date, amount=2.5)

    await asyncio.gather(*(change(date, index) for index, date in enumerate(dates * 3)))
    found = await services.tracking.progress(BEN, id)
    correct, stored = await services.projections.totals.read(["ben"])
    assert correct == stored
    assert found.amount == 2.5 * found.days
    assert len((await services.tracking.page(BEN, id, Page())).days) == found.days
    await services.daily_job.run()
    await assert_matches_tables(services, redis_client)


async def test_the_daily_job_finds_days_of_other_programs(services: ChallengeServices) -> None:
    id = await services.joined(BEN, unit="km")
    today = services.projections.today()
    await services.daily_job.run()
    async with services.sql.begin() as tx:
        rows = [{"challenge_id": id, "username": "ben", "day": today + n, "amount_thousandths": 1500} for n in (0, 1)]
        await tx.execute(insert(TRACKING), rows)
    await services.daily_job.run()
    services.clock.advance(days=1)
    found = await services.tracking.progress(BEN, id)
    assert (found.days, found.amount, found.current_streak) == (2, 3.0, 2)
    async with services.sql.begin() as tx:
        await tx.execute(update(MEMBER).values(days=7, streak=7))
    await services.daily_job.run(rebuild_all=True)
    assert (await services.tracking.progress(BEN, id)).days == 2


async def test_a_leaderboard_orders_members_by_days_amount_or_streak(services: ChallengeServices) -> None:
    dan = user("dan")
    id = await services.joined(ANA, BEN, CLEO, dan, unit="pages")
    today = services.projections.today()
    services.clock.advance(days=4)
    for actor, days, amount in ((ANA, (0, 1, 2), 1.5), (BEN, (3, 4), 20.0), (CLEO, (4,), None)):
        for day in days:
            await services.tracking.track(actor, id, NewTracking(iso_date(today + day), amount))

    async def names(by: Any, **page: Any) -> list[str]:
        found = await services.leaderboards.page(None, id, LeaderboardQuery(by=by, **page))
        assert (found.unit, found.days, found.amount) == ("pages", 6, 44.5)
        return [member.username for member in found.members]

    assert await names("days") == ["ana", "ben", "cleo"], "dan has tracked nothing"
    assert await names("amount") == ["ben", "ana"]
    assert await names("streak") == ["ben", "cleo"], "ana's streak has ended"
    first = await services.leaderboards.page(None, id, LeaderboardQuery(limit=1))
    assert (first.members[0].longest_streak, first.members[0].current_streak) == (3, 0)
    await services.track(CLEO, id, iso_date(today + 3))
    await services.track(CLEO, id, iso_date(today + 2))
    await services.track(CLEO, id, iso_date(today + 1))  # the first now
    second = await services.leaderboards.page(None, id, LeaderboardQuery(cursor=first.pagination.next_cursor, limit=5))
    assert [member.username for member in second.members] == ["cleo", "ben"], "no member twice, none left out"
    services.clock.advance(seconds=601)
    with pytest.raises(Gone):
        await services.leaderboards.page(None, id, LeaderboardQuery(cursor=first.pagination.next_cursor))


async def test_a_leaderboard_leaves_out_users_hidden_by_blocks(services: ChallengeServices, redis_client: Any) -> None:
    id = await services.joined(ANA, BEN, CLEO)
    for actor in (ANA, BEN, CLEO):
        await services.track(actor, id)
    await redis_client.zadd(USER_BLOCKED("ana"), {"ben": 1})
    found = await services.leaderboards.page(ANA, id, LeaderboardQuery(limit=2))
    assert [member.username for member in found.members] == ["ana", "cleo"]
    private = (await services.challenge(public=False)).id
    with pytest.raises(PrivateChallenge):
        await services.leaderboards.page(BEN, private, LeaderboardQuery())


async def test_leaderboards_read_indexes_only_and_sort_nothing(services: ChallengeServices) -> None:
    if services.sql.dialect != "sqlite":
        return  # it says how it reads a table of any size, PostgreSQL only for one that is large
    for statement in (*FIRST_MEMBERS.values(), TOTALS):
        query = str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))
        given = dict.fromkeys(re.findall(r":(\w+)", query), 1)
        async with services.sql.read() as tx:
            plan = " ".join(row[3] for row in await tx.execute(text(f"EXPLAIN QUERY PLAN {query}"), given))
        assert "COVERING INDEX ix_member_" in plan, query
        assert "TEMP B-TREE" not in plan, query
