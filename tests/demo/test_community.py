"""The small community, as other services find it in Valkey."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from plaza.app import Plaza
from plaza.challenges.recommendation.recommender import Recommender
from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.demo.keys import DEMO, DEMO_RUNS
from plaza.demo.loader import COMMUNITY_ARTICLES, COMMUNITY_POSTS
from plaza.demo.loaders.live import EVENT
from plaza.demo.service import LOOK_SECONDS, Demo
from plaza.demo.users import CommunityUsers
from plaza.live.statistics import AudienceFigures
from plaza.shop.items import Items
from tests.demo.conftest import everything, lasting
from tests.social.consistency import faults

on_one_server = pytest.mark.parametrize("place", ["server"], indirect=True)


async def test_a_wanted_community_is_loaded_true_in_every_key_and_never_twice(
    plaza: Plaza, demo: Demo, redis_client: Any
) -> None:
    now = plaza.core.clock.now_ms()
    await redis_client.hset(DEMO(), mapping={"state": "wanted", "since": now, "on": 1})
    await asyncio.gather(demo.turn(), demo.turn())  # two workers
    facts = await everything(redis_client)
    assert facts["demo"][()]["state"] == "loaded"
    assert faults(facts, plaza.core.clock.now_ms()) == []
    assert set(facts["user"]) == {(person.username,) for person in CommunityUsers().people}
    assert len(facts["explore_feed"][()]) == COMMUNITY_POSTS
    assert len(facts["articles_by_time"][()]) == COMMUNITY_ARTICLES
    assert all(int(post["created_at"]) < now for post in facts["post"].values())
    assert len((await plaza.get(Items).page(Page(limit=100))).items) > 20
    assert (await plaza.get(AudienceFigures).totals(EVENT)).attended > 100

    await redis_client.delete(DEMO_RUNS())  # as if the last run had not got to say that it was done
    await demo.loader.community(now)
    assert lasting(await everything(redis_client)) == lasting(facts)
    assert (await plaza.get(Recommender).recommend(Actor("mira", "user"), 20)).posts


@on_one_server
async def test_a_load_that_is_broken_off_anywhere_goes_on_where_it_was(
    plaza: Plaza, demo: Demo, redis_client: Any
) -> None:
    now = plaza.core.clock.now_ms()
    reached = [await _broken_off(demo, redis_client, now, after=batches) for batches in (3, 11, 24)]
    assert reached == sorted(reached)
    assert reached[0] > 0
    assert (await demo.loader.community(now)).records > 0
    facts = await everything(redis_client)
    assert faults(facts, plaza.core.clock.now_ms()) == []
    assert len(facts["explore_feed"][()]) == COMMUNITY_POSTS
    assert len(facts["articles_by_time"][()]) == COMMUNITY_ARTICLES


async def _broken_off(demo: Demo, redis_client: Any, now: int, after: int) -> int:
    """Cancel a load once it has come so far; how far that was."""

    async def there() -> int:
        noted = await redis_client.hget(DEMO_RUNS(), "community") or "[0,0]"
        stage, batches = (int(part) for part in noted.strip("[]").split(","))
        return stage * 10 + batches

    task = asyncio.ensure_future(demo.loader.community(now))
    while await there() < after and not task.done():
        pass
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return await there()


@on_one_server
async def test_without_a_demo_workers_do_nothing_but_look(demo: Demo, redis_client: Any) -> None:
    before = await everything(redis_client)
    assert await demo.turn() == LOOK_SECONDS
    assert await everything(redis_client) == before
