"""What a page shows beside a challenge: whether one takes part, which days count, what one has reacted to."""

from __future__ import annotations

import pytest

from plaza.challenges.model import NewTracking, Private
from plaza.challenges.participation import Standings
from plaza.core.errors import NotFound
from tests.challenges.conftest import ANA, BEN, CLEO, World


async def test_a_person_sees_how_they_stand_and_nobody_elses_days(world: World) -> None:
    standings = Standings(world.sql, world.clock)
    id = await world.joined(BEN)
    await world.challenges.track(BEN, id, NewTracking())
    mine, other = await standings.of(BEN, id), await standings.of(CLEO, id)
    assert (mine.member, mine.days, mine.tracked_today) == (True, [world.derived.today()], True)
    assert (other.member, other.days, other.tracked_today) == (False, [], False)
    assert await standings.joined(BEN, [id, id + 1]) == {id}
    assert await standings.joined(CLEO, [id]) == set()


async def test_a_person_sees_what_they_have_reacted_to(world: World) -> None:
    standings = Standings(world.sql, world.clock)
    id = await world.joined(BEN)
    first, second = (await world.post(BEN, id)).id, (await world.post(BEN, id)).id
    await world.posts.react(CLEO, first)
    assert await standings.reacted(CLEO, [first, second]) == {first}
    assert await standings.reacted(BEN, [first, second]) == set()
    await world.posts.take_back(CLEO, first)
    assert await standings.reacted(CLEO, [first, second]) == set()


async def test_one_post_is_read_by_those_who_may_look_into_its_challenge(world: World) -> None:
    made = await world.challenge(public=False)
    await world.challenges.join(ANA, made.id)
    post = await world.post(ANA, made.id)
    assert (await world.posts.read(ANA, post.id)).id == post.id
    with pytest.raises(Private):
        await world.posts.read(BEN, post.id)
    with pytest.raises(NotFound):
        await world.posts.read(ANA, post.id + 1)
