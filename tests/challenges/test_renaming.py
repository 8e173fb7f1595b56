"""Renaming a user renames their rows and keys in challenges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from plaza.challenges.keys import CLG_SHOWN, USER_CONTRIBUTION
from plaza.challenges.tables import TABLES
from plaza.core.errors import Unauthenticated
from plaza.core.revocations import Revocations
from tests.challenges.conftest import BEN, CLEO, World, user
from tests.challenges.expected_state import assert_matches_tables
from tests.username_lock_probe import assert_waits_for_username_lock


async def all_rows(world: World) -> dict[str, list[tuple[Any, ...]]]:
    async with world.sql.read() as tx:
        return {
            name: [tuple(row) for row in await tx.execute(select(table).order_by(table.c.id))]
            for name, table in TABLES.items()
        }


async def test_a_renamed_user_keeps_rows_and_keys_without_a_rebuild(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN, CLEO)
    await world.challenge(BEN)
    post, other = await world.post(BEN, id), await world.post(CLEO, id)
    await world.recommender.recommend(BEN, 20)
    await world.posts.react(CLEO, post.id)
    await world.posts.react(BEN, other.id)
    await world.track(BEN, id)
    await world.daily_job.run()
    before = await all_rows(world)
    export = await world.personal_data.export("ben")
    for _ in range(2):  # the second run has nothing to do
        await world.personal_data.rename("ben", "benny")
    assert not any((await world.personal_data.export("ben")).values())
    assert await world.personal_data.export("benny") == export
    assert await all_rows(world) == {
        name: [tuple("benny" if part == "ben" else part for part in row) for row in found]
        for name, found in before.items()
    }
    assert (await world.daily_job.run()).rebuilt == []
    await assert_matches_tables(world, redis_client)
    assert not await redis_client.exists(CLG_SHOWN("ben"))
    assert await redis_client.ttl(CLG_SHOWN("benny")) > 0
    assert not await redis_client.hexists(USER_CONTRIBUTION(), "ben")


async def test_rows_that_both_names_have_are_merged(world: World, redis_client: Any) -> None:
    benny = user("benny")
    id = await world.joined(BEN, benny, CLEO)
    post = await world.post(CLEO, id)
    await world.daily_job.run()
    for actor in (BEN, benny):
        await world.posts.react(actor, post.id)
        await world.track(actor, id)
    await world.personal_data.rename("ben", "benny")
    assert {kind: len(found) for kind, found in (await world.personal_data.export("benny")).items()} == {
        "challenges": 0,
        "memberships": 1,
        "posts": 0,
        "reactions": 1,
        "tracked": 1,
        "recommended": 0,
    }
    assert (await world.daily_job.run()).rebuilt == []
    await assert_matches_tables(world, redis_client)


@pytest.mark.parametrize("new", ["benny", None])
async def test_requests_that_started_before_the_name_was_revoked_write_no_rows(world: World, new: str | None) -> None:
    """Every operation that writes a name, in a request authenticated before and written after."""
    id = await world.joined(BEN, CLEO)
    joinable, post = await world.challenge(), await world.post(CLEO, id)
    ben = replace(BEN, since_ms=world.clock.now_ms())
    world.clock.advance(seconds=1)
    await Revocations(world.projections.valkey, clock=world.clock).revoke("ben")
    await (world.personal_data.delete("ben") if new is None else world.personal_data.rename("ben", new))
    before = await all_rows(world)
    for late_call in (
        lambda: world.challenge(ben),
        lambda: world.challenges.join(ben, joinable.id),
        lambda: world.track(ben, id),
        lambda: world.post(ben, id),
        lambda: world.posts.react(ben, post.id),
    ):
        with pytest.raises(Unauthenticated):
            await late_call()
    assert await all_rows(world) == before
    await world.challenges.join(replace(ben, since_ms=world.clock.now_ms() + 1), joinable.id)


async def test_a_day_tracked_during_a_rename_counts_for_the_new_name(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The days are read from SQL before the rename and written to Valkey after it."""
    id, call = await world.joined(BEN), world.functions.run

    async def delayed(command: str, *args: Any) -> Any:
        if command == "challenges_write_contributions":
            monkeypatch.setattr(world.functions, "run", call)
            await world.personal_data.rename("ben", "benny")
        return await call(command, *args)

    monkeypatch.setattr(world.functions, "run", delayed)
    await world.track(BEN, id)
    assert await redis_client.hgetall(USER_CONTRIBUTION()) == {"benny": "1,0,0,0,0"}


@pytest.mark.parametrize("place", ["cluster"], indirect=True)  # with PostgreSQL; on SQLite all writers wait
@pytest.mark.parametrize("new", ["benny", None])
async def test_deletion_and_renaming_wait_for_rows_being_written(world: World, new: str | None) -> None:
    giving_up = world.personal_data.delete("ben") if new is None else world.personal_data.rename("ben", new)
    await assert_waits_for_username_lock(world.sql, world.projections.valkey, "ben", giving_up)
