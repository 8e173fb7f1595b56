"""A user's participation: memberships, tracked days and reactions."""

from __future__ import annotations

import time
from typing import Any

import pytest

from plaza.challenges.keys import CLG_TICKETS
from plaza.challenges.model import PrivateChallenge
from plaza.challenges.participation_reader import Participations
from plaza.core.errors import NotFound
from plaza.core.functions import Functions
from tests.challenges.conftest import ANA, BEN, CLEO, ChallengeServices
from tests.waiting import eventually


async def test_participation_has_the_users_own_days_only(services: ChallengeServices) -> None:
    participations = Participations(services.sql, services.clock)
    id = await services.joined(BEN)
    await services.track(BEN, id)
    mine, other = await participations.get(BEN, id), await participations.get(CLEO, id)
    assert (mine.member, mine.days, mine.tracked_today) == (True, [services.projections.today()], True)
    assert (other.member, other.days, other.tracked_today) == (False, [], False)
    assert await participations.get_joined(BEN, [id, id + 1]) == {id}
    assert await participations.get_joined(CLEO, [id]) == set()


async def test_reacted_has_the_users_own_reactions_only(services: ChallengeServices) -> None:
    participations = Participations(services.sql, services.clock)
    id = await services.joined(BEN)
    first, second = (await services.post(BEN, id)).id, (await services.post(BEN, id)).id
    await services.posts.react(CLEO, first)
    assert await participations.get_reacted(CLEO, [first, second]) == {first}
    assert await participations.get_reacted(BEN, [first, second]) == set()
    await services.posts.remove_reaction(CLEO, first)
    assert await participations.get_reacted(CLEO, [first, second]) == set()


async def test_a_post_of_a_private_challenge_is_read_by_its_members_only(services: ChallengeServices) -> None:
    made = await services.challenge(public=False)
    await services.challenges.join(ANA, made.id)
    post = await services.post(ANA, made.id)
    assert (await services.posts.read(ANA, post.id)).id == post.id
    with pytest.raises(PrivateChallenge):
        await services.posts.read(BEN, post.id)
    with pytest.raises(NotFound):
        await services.posts.read(ANA, post.id + 1)


async def test_a_ticket_that_a_failover_lost_is_not_given_again(functions: Functions, redis_client: Any) -> None:
    """Otherwise a stalled writer with the lost ticket could write what it read before others."""
    (lost,) = await functions.run("challenges_take_tickets", [CLG_TICKETS("ana")])
    await redis_client.delete(CLG_TICKETS("ana"))
    await eventually(lambda: time.time() * 1000 > int(lost) + 1)  # a failover takes longer
    (later,) = await functions.run("challenges_take_tickets", [CLG_TICKETS("ana")])
    assert int(later) > int(lost)
