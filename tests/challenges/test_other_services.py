"""Other programs change the SQL tables and the documented keys. Plaza starts, shows, counts and repairs."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from plaza.challenges import invariants
from plaza.challenges.invariants import ChallengesInspector
from plaza.challenges.keys import CLGS_PREFERENCE, LIKED_POSTS, USER_CONTRIBUTION
from plaza.challenges.tables import REACTION
from plaza.core.invariants import Violation
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from tests.challenges.conftest import ANA, BEN, ChallengeServices
from tests.challenges.expected_state import assert_matches_tables

on_sqlite = pytest.mark.parametrize("place", ["server"], indirect=True)  # PostgreSQL enforces foreign keys


@pytest.fixture
def inspector(services: ChallengeServices, monkeypatch: pytest.MonkeyPatch) -> ChallengesInspector:
    monkeypatch.setattr(invariants, "PAUSE_SECONDS", 0.001)
    return ChallengesInspector(services.projections, services.daily_job)


async def violations(found: AsyncIterator[Violation]) -> list[Violation]:
    return [violation async for violation in found]


def delete_without_foreign_keys(data_dir: Path, table: str, id: int) -> None:
    """Delete a row with a plain client, which leaves foreign keys off."""
    with sqlite3.connect(data_dir / "plaza.sqlite") as connection:
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (id,))
    connection.close()


@on_sqlite
async def test_orphaned_rows_stop_no_start_and_are_repaired(
    services: ChallengeServices, inspector: ChallengesInspector, redis_client: Any, tmp_path: Path
) -> None:
    id = await services.joined(BEN)
    post, other = await services.post(BEN, id), await services.post(BEN, id)
    for reacted in (post, other):
        await services.posts.react(ANA, reacted.id)
    await services.daily_job.run()
    delete_without_foreign_keys(tmp_path, "post", post.id)
    again = await Sql.open(Settings(data_dir=tmp_path))
    await again.close()
    await services.daily_job.run()
    await services.daily_job.run(rebuild_all=True)
    (violation,) = await violations(inspector.inspect())
    assert violation.rule == "orphan"
    assert violation.says == "row 1 of table reaction refers to a missing post"
    await inspector.repair(violation)
    await inspector.repair(violation)
    assert await violations(inspector.inspect()) == []
    async with services.sql.read() as tx:
        assert [row.post_id for row in await tx.execute(select(REACTION))] == [other.id]
    assert await redis_client.smembers(LIKED_POSTS("ana")) == {str(other.id)}
    assert await redis_client.zscore(CLGS_PREFERENCE("ana"), id) == 1
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)


@on_sqlite
async def test_all_rows_of_a_missing_challenge_are_repaired(
    services: ChallengeServices, inspector: ChallengesInspector, redis_client: Any, tmp_path: Path
) -> None:
    id = await services.joined(BEN)
    await services.posts.react(ANA, (await services.post(BEN, id)).id)
    await services.track(BEN, id)
    await services.daily_job.run()
    delete_without_foreign_keys(tmp_path, "challenge", id)
    await services.daily_job.run()
    async for violation in inspector.inspect():
        await inspector.repair(violation)
    assert await violations(inspector.inspect()) == []
    await services.daily_job.run()
    await assert_matches_tables(services, redis_client)


async def test_a_wrong_value_is_reported_once(
    services: ChallengeServices, inspector: ChallengesInspector, redis_client: Any
) -> None:
    id = await services.joined(BEN)
    await services.track(BEN, id)
    await services.daily_job.run()
    await redis_client.hset(USER_CONTRIBUTION(), "ben", "2,0,0,0,0")
    (violation,) = await violations(inspector.inspect())
    await inspector.repair(violation)
    assert await redis_client.hget(USER_CONTRIBUTION(), "ben") == "1,0,0,0,0"
    assert await violations(inspector.inspect()) == []


async def test_the_audit_pauses_for_all_wrong_values_together(
    services: ChallengeServices, inspector: ChallengesInspector, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failover thousands may be wrong."""
    id = await services.joined(ANA, BEN)
    for user in (ANA, BEN):
        await services.track(user, id)
    await services.daily_job.run()
    for user in (ANA, BEN):
        await redis_client.hset(USER_CONTRIBUTION(), user.name, "2,0,0,0,0")
    monkeypatch.setattr(invariants, "PAUSE_SECONDS", 2**-10)  # nothing else sleeps so long
    pauses, sleep = 0, asyncio.sleep

    async def counted(seconds: float) -> None:
        nonlocal pauses
        pauses += seconds == invariants.PAUSE_SECONDS
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", counted)
    monkeypatch.setattr(invariants, "BATCH", 1)
    assert {violation.member for violation in await violations(inspector.inspect())} == {"ana", "ben"}
    assert pauses == invariants.READS - 1


async def test_an_odd_preference_does_not_stop_recommendations(services: ChallengeServices, redis_client: Any) -> None:
    id = await services.joined(BEN)
    posts = [await services.post(BEN, id) for _ in range(2)]
    await services.posts.react(ANA, posts[0].id)
    for odd in ("inf", "-inf", "0.5"):
        await redis_client.zadd(CLGS_PREFERENCE("ana"), {str(id): odd})
        assert [found.post.id for found in (await services.recommender.recommend(ANA, 20)).posts] == [posts[1].id]
