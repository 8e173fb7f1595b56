"""A user's participation: memberships, tracked days and reactions."""

from __future__ import annotations

import pytest

from plaza.challenges.model import NewTracking, PrivateChallenge
from plaza.challenges.participation_reader import Participations
from plaza.core.errors import NotFound
from tests.challenges.conftest import ANA, BEN, CLEO, World


async def test_participation_has_the_users_own_days_only(world: World) -> None:
    participations = Participations(world.sql, world.clock)
    id = await world.joined(BEN)
    await world.challenges.track(BEN, id, NewTracking())
    mine, other = await participations.get(BEN, id), await participations.get(CLEO, id)
    assert (mine.member, mine.days, mine.tracked_today) == (True, [world.projections.today()], True)
    assert (other.member, other.days, other.tracked_today) == (False, [], False)
    assert await participations.get_joined(BEN, [id, id + 1]) == {id}
    assert await participations.get_joined(CLEO, [id]) == set()


async def test_reacted_has_the_users_own_reactions_only(world: World) -> None:
    participations = Participations(world.sql, world.clock)
    id = await world.joined(BEN)
    first, second = (await world.post(BEN, id)).id, (await world.post(BEN, id)).id
    await world.posts.react(CLEO, first)
    assert await participations.get_reacted(CLEO, [first, second]) == {first}
    assert await participations.get_reacted(BEN, [first, second]) == set()
    await world.posts.remove_reaction(CLEO, first)
    assert await participations.get_reacted(CLEO, [first, second]) == set()


async def test_a_post_of_a_private_challenge_is_read_by_its_members_only(world: World) -> None:
    made = await world.challenge(public=False)
    await world.challenges.join(ANA, made.id)
    post = await world.post(ANA, made.id)
    assert (await world.posts.read(ANA, post.id)).id == post.id
    with pytest.raises(PrivateChallenge):
        await world.posts.read(BEN, post.id)
    with pytest.raises(NotFound):
        await world.posts.read(ANA, post.id + 1)
