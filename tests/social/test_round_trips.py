"""Sequential round trips of a write: one on one server, at most five on a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.social import posts as posts_module
from plaza.social.model import NewComment
from tests.round_trips import count_round_trips
from tests.social.conftest import Social, trips

# Of the test itself, and the call of the function.
IGNORED_COMMANDS = ("cmdstat_config", "cmdstat_info", "cmdstat_fcall")


async def test_writes_take_at_most_five_sequential_round_trips_on_a_cluster(
    social: Social, ana: Actor, bob: Actor
) -> None:
    mia = await social.create_user("mia", "model")
    await social.relations.follow(bob, "ana")
    post, top = await social.post(ana, "#a #b #c"), await social.post(mia, "#a")
    limit = 5 if social.valkey.clustered else 1
    for work in (
        social.post(ana, "#a #b"),
        social.engagements.like(bob, post.id),
        social.engagements.like(bob, top.id),
        social.engagements.bookmark(bob, post.id),
        social.engagements.bookmark(bob, top.id),
        social.comments.create(bob, post.id, NewComment("hi")),
        social.comments.create(bob, top.id, NewComment("hi")),
        social.relations.follow(bob, "mia"),
        social.post(mia, "#a #b"),
        social.engagements.unlike(bob, top.id),
        social.engagements.unbookmark(bob, top.id),
    ):
        assert await count_round_trips(social.valkey, work) <= limit


async def test_a_page_takes_two_round_trips_on_one_server(social: Social, ana: Actor, bob: Actor) -> None:
    for i in range(25):
        social.clock.advance(seconds=1)
        await social.post(bob if i % 2 else ana, "#tea")
    await social.relations.follow(ana, "bob")
    page = await social.feeds.explore(ana, Page(limit=10))
    cursor = page.pagination.next_cursor
    limit = 3 if social.valkey.clustered else 2
    assert await trips(social.feeds.explore(ana, Page())) <= limit
    assert await trips(social.feeds.explore(None, Page())) <= limit
    assert await trips(social.feeds.explore(ana, Page(limit=10, cursor=cursor))) <= limit
    assert await trips(social.feeds.hashtag(ana, "tea", Page())) <= limit
    assert len((await social.feeds.explore(ana, Page())).items) == 20


async def test_a_user_blocked_by_many_is_still_hidden(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posts_module, "MAX_CHECKED_BLOCKS", 3)
    post = await social.post(bob)
    for i in range(5):
        await social.relations.block(await social.create_user(f"p{i}"), "ana")
    assert (await social.engagements.like(ana, post.id)).changed
    social.clock.advance(seconds=1)
    await social.relations.block(bob, "ana")
    with pytest.raises(NotFound):
        await social.engagements.like(ana, post.id)


@pytest.mark.parametrize("place", ["server"], indirect=True)
async def test_a_write_runs_few_commands_in_valkey(social: Social, ana: Actor, bob: Actor, redis_client: Any) -> None:
    post = await social.post(ana, "#a #b")
    await social.engagements.like(ana, post.id)
    await redis_client.config_resetstat()
    works = (
        (15, social.engagements.like(bob, post.id)),
        (14, social.engagements.unlike(bob, post.id)),
        (15, social.relations.follow(bob, "ana")),
        (14, social.relations.unfollow(bob, "ana")),
        (18, social.post(ana, "#a #b")),
    )
    for most, work in works:
        await work
        stats = await redis_client.info("commandstats")
        await redis_client.config_resetstat()
        calls = {name: each["calls"] for name, each in stats.items() if not name.startswith(IGNORED_COMMANDS)}
        assert sum(calls.values()) <= most, calls
