"""A person who takes another name has it in challenges too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from plaza.challenges.keys import CLG_SHOWN, USER_CONTRIBUTION
from plaza.challenges.tables import BY_NAME
from plaza.core.errors import Unauthenticated
from plaza.core.revocations import Revocations
from tests.challenges.conftest import BEN, CLEO, World, person
from tests.challenges.expected_state import assert_true
from tests.username_lock_probe import assert_waits_for_username_lock


async def rows(world: World) -> dict[str, list[tuple[Any, ...]]]:
    async with world.sql.read() as tx:
        return {
            name: [tuple(row) for row in await tx.execute(select(table).order_by(table.c.id))]
            for name, table in BY_NAME.items()
        }


async def test_a_renamed_person_keeps_rows_and_keys_and_nothing_is_rebuilt(world: World, redis_client: Any) -> None:
    id = await world.joined(BEN, CLEO)
    await world.challenge(BEN)
    post, other = await world.post(BEN, id), await world.post(CLEO, id)
    await world.recommender.recommend(BEN, 20)
    await world.posts.react(CLEO, post.id)
    await world.posts.react(BEN, other.id)
    await world.track(BEN, id)
    await world.roll.run()
    before = await rows(world)
    held = await world.people.export("ben")
    for _ in range(2):  # a second time finds nothing to do
        await world.people.rename("ben", "benny")
    assert not any((await world.people.export("ben")).values())
    assert await world.people.export("benny") == held
    assert await rows(world) == {
        name: [tuple("benny" if part == "ben" else part for part in row) for row in found]
        for name, found in before.items()
    }
    assert (await world.roll.run()).rebuilt == []
    await assert_true(world, redis_client)
    assert not await redis_client.exists(CLG_SHOWN("ben"))
    assert await redis_client.ttl(CLG_SHOWN("benny")) > 0
    assert not await redis_client.hexists(USER_CONTRIBUTION(), "ben")


async def test_rows_that_both_names_have_become_one(world: World, redis_client: Any) -> None:
    benny = person("benny")
    id = await world.joined(BEN, benny, CLEO)
    post = await world.post(CLEO, id)
    await world.roll.run()
    for one in (BEN, benny):
        await world.posts.react(one, post.id)
        await world.track(one, id)
    await world.people.rename("ben", "benny")
    assert {kind: len(found) for kind, found in (await world.people.export("benny")).items()} == {
        "challenges": 0,
        "memberships": 1,
        "posts": 0,
        "reactions": 1,
        "tracked": 1,
        "recommended": 0,
    }
    assert (await world.roll.run()).rebuilt == []
    await assert_true(world, redis_client)


@pytest.mark.parametrize("new", ["benny", None])
async def test_what_was_under_way_when_the_name_was_given_up_leaves_no_rows_under_it(
    world: World, new: str | None
) -> None:
    """Every verb that writes a name, by a request that was let in before and writes after."""
    id = await world.joined(BEN, CLEO)
    joinable, post = await world.challenge(), await world.post(CLEO, id)
    ben = replace(BEN, since_ms=world.clock.now_ms())
    world.clock.advance(seconds=1)
    await Revocations(world.derived.valkey, clock=world.clock).note("ben")
    await (world.people.delete("ben") if new is None else world.people.rename("ben", new))
    before = await rows(world)
    for late in (
        lambda: world.challenge(ben),
        lambda: world.challenges.join(ben, joinable.id),
        lambda: world.track(ben, id),
        lambda: world.post(ben, id),
        lambda: world.posts.react(ben, post.id),
    ):
        with pytest.raises(Unauthenticated):
            await late()
    assert await rows(world) == before
    await world.challenges.join(replace(ben, since_ms=world.clock.now_ms() + 1), joinable.id)


async def test_a_day_that_is_counted_while_the_name_is_given_up_is_not_counted_under_it(
    world: World, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The days were read from the tables before the renaming, and are written to Valkey after it."""
    id, call = await world.joined(BEN), world.functions.run

    async def held_up(verb: str, *args: Any) -> Any:
        if verb == "challenges_contribution":
            monkeypatch.setattr(world.functions, "run", call)
            await world.people.rename("ben", "benny")
        return await call(verb, *args)

    monkeypatch.setattr(world.functions, "run", held_up)
    await world.track(BEN, id)
    assert await redis_client.hgetall(USER_CONTRIBUTION()) == {"benny": "1,0,0,0,0"}


@pytest.mark.parametrize("place", ["cluster"], indirect=True)  # the place with PostgreSQL; on SQLite all writers wait
@pytest.mark.parametrize("new", ["benny", None])
async def test_rows_that_are_being_written_are_waited_for(world: World, new: str | None) -> None:
    giving_up = world.people.delete("ben") if new is None else world.people.rename("ben", new)
    await assert_waits_for_username_lock(world.sql, world.derived.valkey, "ben", giving_up)
