"""The small community, read with a plain client."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from plaza.app import Plaza
from plaza.challenges.recommendation.recommender import Recommender
from plaza.core.auth import Actor
from plaza.core.paging import Page
from plaza.core.pictures import decode_pictures, picture_in_address
from plaza.demo.keys import DEMO, DEMO_RUNS
from plaza.demo.lifecycle import CHECK_SECONDS, Demo
from plaza.demo.loader import COMMUNITY_ARTICLES, COMMUNITY_POSTS
from plaza.demo.loaders.live import EVENT
from plaza.demo.loaders.pictures import PICTURES_OF_POSTS
from plaza.demo.users import CommunityUsers
from plaza.live.statistics import AudienceFigures
from plaza.media.delivery import PictureDelivery
from plaza.shop.items import Items
from tests.demo.conftest import read_all_keys, without_changing_keys
from tests.social.consistency import violations

on_one_server = pytest.mark.parametrize("place", ["server"], indirect=True)


async def test_a_requested_community_is_loaded_once_and_every_key_is_right(
    plaza: Plaza, demo: Demo, redis_client: Any
) -> None:
    now = plaza.core.clock.now_ms()
    await redis_client.hset(DEMO(), mapping={"state": "wanted", "since": now, "on": 1})
    await asyncio.gather(demo.turn(), demo.turn())  # two workers
    found = await read_all_keys(redis_client)
    assert found["demo"][()]["state"] == "loaded"
    assert violations(found, plaza.core.clock.now_ms()) == []
    assert set(found["user"]) == {(user.username,) for user in CommunityUsers().users}
    assert len(found["explore_feed"][()]) == COMMUNITY_POSTS
    assert len(found["articles_by_time"][()]) == COMMUNITY_ARTICLES
    assert found["article_comment_parents"], "discussions with replies"
    assert all(int(post["created_at"]) < now for post in found["post"].values())
    items = (await plaza.get(Items).page(Page(limit=100))).items
    assert len(items) > 20
    assert all(item.media for item in items)
    pictures = [decode_pictures(post.get("media")) for post in found["post"].values()]
    assert sum(map(bool, pictures)) == len(PICTURES_OF_POSTS)
    shown = [picture.id for some in pictures for picture in some]
    shown += [str(picture_in_address(user["avatar"])) for user in found["user"].values()]
    for picture in shown:
        assert (await plaza.get(PictureDelivery).find(None, picture, "small", None)).is_public
    assert (await plaza.get(AudienceFigures).totals.get(EVENT)).attended > 100

    await redis_client.delete(DEMO_RUNS())  # as if the last run had died before it saved its progress
    await demo.parts.loader.load_community(now)
    assert without_changing_keys(await read_all_keys(redis_client)) == without_changing_keys(found)
    assert (await plaza.get(Recommender).recommend(Actor("mira", "user"), 20)).posts


@on_one_server
async def test_an_interrupted_load_continues_where_it_stopped(plaza: Plaza, demo: Demo, redis_client: Any) -> None:
    now = plaza.core.clock.now_ms()
    reached = [await _load_interrupted(demo, redis_client, now, after=batches) for batches in (3, 11, 24)]
    assert reached == sorted(reached)
    assert reached[0] > 0
    assert (await demo.parts.loader.load_community(now)).records > 0
    found = await read_all_keys(redis_client)
    assert violations(found, plaza.core.clock.now_ms()) == []
    assert len(found["explore_feed"][()]) == COMMUNITY_POSTS
    assert len(found["articles_by_time"][()]) == COMMUNITY_ARTICLES


async def _load_interrupted(demo: Demo, redis_client: Any, now: int, after: int) -> int:
    """Cancel a load after some batches. Returns how far it came."""

    async def get_progress() -> int:
        progress_json = await redis_client.hget(DEMO_RUNS(), "community") or "[0,0]"
        stage, batches = (int(part) for part in progress_json.strip("[]").split(","))
        return stage * 10 + batches

    task = asyncio.ensure_future(demo.parts.loader.load_community(now))
    while await get_progress() < after and not task.done():
        pass
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return await get_progress()


@on_one_server
async def test_without_a_demo_a_worker_changes_nothing(demo: Demo, redis_client: Any) -> None:
    before = await read_all_keys(redis_client)
    assert await demo.turn() == CHECK_SECONDS
    assert await read_all_keys(redis_client) == before
