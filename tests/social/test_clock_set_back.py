"""The clock is set back by an hour: nothing waits for the old time, and nothing that was revoked stays valid."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from plaza.core.auth import Actor, Auth
from plaza.core.clock import ManualClock
from plaza.core.clock_steps import ClockSteps, observe_latest
from plaza.core.errors import Unauthenticated
from plaza.core.keys import CLOCKS
from plaza.core.paging import Page
from plaza.core.revocations import Revocations
from plaza.social.keys import HASHTAG_RANKED
from tests.social.conftest import ADMIN, SETTINGS, Social

HOUR = 3600


def set_back(social: Social) -> None:
    social.clock.advance(seconds=-HOUR)


async def test_a_new_post_is_in_the_next_read_of_a_home_feed(social: Social, ana: Actor, bob: Actor) -> None:
    await social.relations.follow(ana, "bob")
    old = await social.post(bob)
    await social.home.page(ana, Page())
    set_back(social)
    await social.home.page(ana, Page())
    social.clock.advance(seconds=600)
    new = await social.post(bob)
    found = await social.home.page(ana, Page())
    assert {item.post.id for item in found.items} == {old.id, new.id}


async def test_a_user_whose_suspension_ended_can_use_a_new_token(
    social: Social, bob: Actor, http: httpx.AsyncClient
) -> None:
    await social.users.suspend(ADMIN, "bob", on=True)
    set_back(social)
    await social.users.suspend(ADMIN, "bob", on=False)
    token = social.token(bob)
    assert (await http.get("/whoami", headers=token)).status_code == 200
    social.clock.advance(seconds=901)
    assert (await http.get("/whoami", headers=token)).status_code == 401, "valid for 15 minutes, not for 75"


@pytest.mark.parametrize("started_after", [False, True])
async def test_a_suspension_ends_the_tokens_from_before(social: Social, bob: Actor, *, started_after: bool) -> None:
    token = social.token(bob)
    await ClockSteps(social.valkey, social.clock).check()
    set_back(social)
    users = social.users
    if started_after:  # a process that has never seen the later time
        social.clock = ManualClock(social.clock.now_ms())
        await observe_latest(social.valkey, social.clock)
        users.auth = Auth(SETTINGS, Revocations(social.valkey, clock=social.clock), clock=social.clock)
    assert users.auth.actor(token) is not None, "a step signs no user out"
    await users.suspend(ADMIN, "bob", on=True)
    with pytest.raises(Unauthenticated):
        users.auth.actor(token)


async def test_scores_are_computed_again(social: Social, ana: Actor, bob: Actor, redis_client: Any) -> None:
    post = await social.post(bob, "#tag")
    await social.engagements.like(ana, post.id)
    steps = ClockSteps(social.valkey, social.clock, [social.jobs.make_all_due])
    social.clock.advance(seconds=HOUR)
    await social.jobs.rescore()
    assert await redis_client.zscore(HASHTAG_RANKED("tag"), post.id) == pytest.approx(1.5)
    assert await steps.check() == 0
    set_back(social)
    assert await steps.check() == HOUR * 1000
    await social.jobs.rescore()
    assert await redis_client.zscore(HASHTAG_RANKED("tag"), post.id) == pytest.approx(3)
    assert await steps.check() == 0, "a step is noticed once"
    assert int(await redis_client.hget(CLOCKS(), "service")) == social.clock.now_ms()
