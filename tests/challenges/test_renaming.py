"""Renaming a user renames their rows and keys in challenges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from plaza.challenges.comments import ChallengeComments
from plaza.challenges.keys import CLG_SHOWN, USER_CONTRIBUTION
from plaza.challenges.model import NewChallengeComment
from plaza.challenges.tables import TABLES
from plaza.core.errors import Unauthenticated
from plaza.core.revocations import Revocations
from tests.challenges.conftest import BEN, CLEO, ChallengeServices, user
from tests.challenges.expected_state import assert_matches_tables
from tests.username_lock_probe import assert_waits_for_username_lock


async def all_rows(services: ChallengeServices) -> dict[str, list[tuple[Any, ...]]]:
    async with services.sql.read() as tx:
        return {
            name: [tuple(row) for row in await tx.execute(select(table).order_by(table.c.id))]
            for name, table in TABLES.items()
        }


async def test_a_renamed_user_keeps_rows_and_keys_without_a_rebuild(
    services: ChallengeServices, redis_client: Any
) -> None:
    id = await services.joined(BEN, CLEO)
    await services.challenge(BEN)
    post, other = await services.post(BEN, id), await services.post(CLEO, id)
    await services.recommender.recommend(BEN, 20)
    await services.posts.react(CLEO, post.id)
    await services.posts.react(BEN, other.id)
    await services.track(BEN, id)
    await services.daily_job.run()
    before = await all_rows(services)
    export = await services.personal_data.export("ben")
    for _ in range(2):  # the second run has nothing to do
        await services.personal_data.rename("ben", "benny")
    assert not any((await services.personal_data.export("ben")).values())
    assert await services.personal_data.export("benny") == export
    assert await all_rows(services) == {
        name: [tuple("benny" if part == "ben" else part for part in row) for row in found]
        for name, found in before.items()
    }
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)
    assert not await redis_client.exists(CLG_SHOWN("ben"))
    assert await redis_client.ttl(CLG_SHOWN("benny")) > 0
    assert not await redis_client.hexists(USER_CONTRIBUTION(), "ben")


async def test_rows_that_both_names_have_are_merged(services: ChallengeServices, redis_client: Any) -> None:
    benny = user("benny")
    id = await services.joined(BEN, benny, CLEO)
    post = await services.post(CLEO, id)
    await services.daily_job.run()
    for actor in (BEN, benny):
        await services.posts.react(actor, post.id)
        await services.track(actor, id)
    await services.personal_data.rename("ben", "benny")
    assert {kind: len(found) for kind, found in (await services.personal_data.export("benny")).items() if found} == {
        "memberships": 1,
        "reactions": 1,
        "tracked": 1,
    }
    assert (await services.daily_job.run()).rebuilt == []
    await assert_matches_tables(services, redis_client)


@pytest.mark.parametrize("new", ["benny", None])
async def test_requests_that_started_before_the_name_was_revoked_write_no_rows(
    services: ChallengeServices, new: str | None
) -> None:
    """Every operation that writes a name, in a request authenticated before and written after."""
    id = await services.joined(BEN, CLEO)
    joinable, post = await services.challenge(), await services.post(CLEO, id)
    ben = replace(BEN, since_ms=services.clock.now_ms())
    services.clock.advance(seconds=1)
    await Revocations(services.projections.valkey, clock=services.clock).revoke("ben")
    await (services.personal_data.delete("ben") if new is None else services.personal_data.rename("ben", new))
    before = await all_rows(services)
    for late_call in (
        lambda: services.challenge(ben),
        lambda: services.challenges.join(ben, joinable.id),
        lambda: services.track(ben, id),
        lambda: services.post(ben, id),
        lambda: services.posts.react(ben, post.id),
        lambda: ChallengeComments(services.projections).create(ben, post.id, NewChallengeComment("Late."), None),
    ):
        with pytest.raises(Unauthenticated):
            await late_call()
    assert await all_rows(services) == before
    await services.challenges.join(replace(ben, since_ms=services.clock.now_ms() + 1), joinable.id)


async def test_a_day_tracked_during_a_rename_counts_for_the_new_name(
    services: ChallengeServices, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The days are read from SQL before the rename and written to Valkey after it."""
    id, call = await services.joined(BEN), services.functions.run

    async def delayed(command: str, *args: Any) -> Any:
        if command == "challenges_write_contributions":
            monkeypatch.setattr(services.functions, "run", call)
            await services.personal_data.rename("ben", "benny")
        return await call(command, *args)

    monkeypatch.setattr(services.functions, "run", delayed)
    await services.track(BEN, id)
    assert await redis_client.hgetall(USER_CONTRIBUTION()) == {"benny": "1,0,0,0,0"}


@pytest.mark.parametrize("place", ["cluster"], indirect=True)  # with PostgreSQL; on SQLite all writers wait
@pytest.mark.parametrize("new", ["benny", None])
async def test_deletion_and_renaming_wait_for_rows_being_written(services: ChallengeServices, new: str | None) -> None:
    giving_up = services.personal_data.delete("ben") if new is None else services.personal_data.rename("ben", new)
    await assert_waits_for_username_lock(services.sql, services.projections.valkey, "ben", giving_up)
