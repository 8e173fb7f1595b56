"""How many round trips follow each other: one on one server, five at most on a cluster."""

from __future__ import annotations

import pytest

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.social import posts as posts_module
from plaza.social.model import NewComment
from tests.round_trips import count_round_trips
from tests.social.conftest import Social, trips


async def test_writes_take_at_most_five_in_sequence_on_a_cluster(social: Social, ana: Actor, bob: Actor) -> None:
    mia = await social.person("mia", "model")
    await social.people.follow(bob, "ana")
    post, top = await social.post(ana, "#a #b #c"), await social.post(mia, "#a")
    most = 5 if social.valkey.clustered else 1
    for work in (
        social.post(ana, "#a #b"),
        social.posts.like(bob, post.id),
        social.posts.like(bob, top.id),
        social.posts.bookmark(bob, post.id),
        social.posts.bookmark(bob, top.id),
        social.posts.comment(bob, post.id, NewComment("hi")),
        social.posts.comment(bob, top.id, NewComment("hi")),
        social.people.follow(bob, "mia"),
        social.post(mia, "#a #b"),
        social.posts.unlike(bob, top.id),
        social.posts.unbookmark(bob, top.id),
    ):
        assert await count_round_trips(social.valkey, work) <= most


async def test_a_page_takes_two_on_one_server(social: Social, ana: Actor, bob: Actor) -> None:
    for i in range(25):
        social.clock.advance(seconds=1)
        await social.post(bob if i % 2 else ana, "#tea")
    await social.people.follow(ana, "bob")
    page = await social.feeds.explore(ana, Page(limit=10))
    cursor = page.pagination.next_cursor
    most = 3 if social.valkey.clustered else 2
    assert await trips(social.feeds.explore(ana, Page())) <= most
    assert await trips(social.feeds.explore(None, Page())) <= most
    assert await trips(social.feeds.explore(ana, Page(limit=10, cursor=cursor))) <= most
    assert await trips(social.feeds.hashtag(ana, "tea", Page())) <= most
    assert len((await social.feeds.explore(ana, Page())).items) == 20


async def test_who_is_blocked_by_many_is_still_hidden(
    social: Social, ana: Actor, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posts_module, "FEW", 3)
    post = await social.post(bob)
    for i in range(5):
        await social.people.block(await social.person(f"p{i}"), "ana")
    assert (await social.posts.like(ana, post.id)).changed
    social.clock.advance(seconds=1)
    await social.people.block(bob, "ana")
    with pytest.raises(NotFound):
        await social.posts.like(ana, post.id)
