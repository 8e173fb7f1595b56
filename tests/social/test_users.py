"""Profiles, privacy and relations between users."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from plaza.core.auth import Actor
from plaza.core.errors import NotFound
from plaza.core.paging import Page
from plaza.social import keys as k
from plaza.social.model import PRIVATE_FIELDS, NewComment, PostEdit, Profile, SelfRelation
from tests.social.conftest import ADMIN, Social

SECRETS = {field: f"secret-{field}" for field in PRIVATE_FIELDS}


async def test_a_follow_is_on_both_sides(
    social: Social, ana: Actor, bob: Actor, redis_client: Any, assert_consistent: Any
) -> None:
    assert (await social.relations.follow(ana, "bob")).changed
    assert not (await social.relations.follow(ana, "bob")).changed
    assert await redis_client.smembers(k.USER_FOLLOWING("ana")) == {"bob"}
    assert await redis_client.smembers(k.USER_FOLLOWERS("bob")) == {"ana"}
    assert await redis_client.hget(k.USER("bob"), "followerCount") == "1"
    assert [user.username for user in (await social.relations.followers(None, "bob", Page())).items] == ["ana"]
    assert [user.username for user in (await social.relations.following(ana, "ana", Page())).items] == ["bob"]
    await assert_consistent()
    assert (await social.relations.unfollow(ana, "bob")).changed
    assert not (await social.relations.unfollow(ana, "bob")).changed
    await assert_consistent()
    with pytest.raises(SelfRelation):
        await social.relations.follow(ana, "ana")
    with pytest.raises(NotFound):
        await social.relations.follow(ana, "missing")
    await assert_consistent()


async def test_blocking_ends_follows_both_ways_and_hides_each_from_the_other(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Any
) -> None:
    await social.relations.follow(ana, "bob")
    await social.relations.follow(bob, "ana")
    posts = {who.name: await social.post(who, "#tea") for who in (ana, bob)}
    await social.comments.create(bob, posts["bob"].id, NewComment("hi"))
    cat = await social.create_user("cat")
    social.clock.advance(seconds=1)
    post_of_cat = await social.post(cat)
    for who, other in ((ana, bob), (bob, ana)):
        await social.users.set_role(ADMIN, who.name, "model")
        await social.relations.follow(cat, who.name)
        await social.relations.follow(who, "cat")
        await social.engagements.like(who, post_of_cat.id)
        await social.engagements.bookmark(who, posts[other.name].id)
    await social.relations.block(ana, "bob")
    keyspace = await assert_consistent()
    assert keyspace["user_following"] == {("cat",): {"ana", "bob"}, ("ana",): {"cat"}, ("bob",): {"cat"}}
    assert keyspace["user_followers"] == keyspace["user_following"]
    for who, other in ((ana, bob), (bob, ana)):
        post = posts[other.name]
        for work in (
            social.users.get(who, other.name),
            social.relations.follow(who, other.name),
            social.relations.mute(who, other.name),
            social.posts.get(who, post.id),
            social.engagements.like(who, post.id),
            social.engagements.unlike(who, post.id),
            social.engagements.bookmark(who, post.id),
            social.comments.create(who, post.id, NewComment("x")),
            social.comments.page(who, post.id, Page()),
            social.engagements.likes(who, post.id, Page()),
            social.posts.edit(who, post.id, PostEdit("x")),
            social.posts.delete(who, post.id),
            social.feeds.user_posts(who, other.name, Page()),
            social.relations.followers(who, other.name, Page()),
        ):
            with pytest.raises(NotFound):
                await work
        mine = [posts[who.name].id]
        assert [item.post.id for item in (await social.feeds.explore(who, Page())).items] == [post_of_cat.id, *mine]
        assert [item.post.id for item in (await social.feeds.hashtag(who, "tea", Page())).items] == mine
        assert [item.post.id for item in (await social.feeds.ranked(who, "tea", Page())).items] == mine
        assert [item.post.id for item in (await social.feeds.top_posts(who, "tea", 5))[0].posts] == mine
        assert (await social.feeds.bookmarked(who, who.name, Page())).items == []
        assert [item.post.id for item in (await social.home.page(who, Page())).items] == [post_of_cat.id]
        for listed in (
            await social.users.newest(who, "model", Page()),
            await social.feeds.top_models(who, Page()),
            await social.relations.followers(who, "cat", Page()),
            await social.relations.following(who, "cat", Page()),
            await social.engagements.likes(who, post_of_cat.id, Page()),
        ):
            assert [user.username for user in listed.items] == [who.name]
        assert (await social.engagements.unbookmark(who, post.id)).changed, "users can remove their own marks"
        with pytest.raises(NotFound):
            await social.engagements.unbookmark(who, post.id)
    assert [user.username for user in (await social.relations.blocked(ana, Page())).items] == ["bob"]
    assert len((await social.feeds.explore(None, Page())).items) == 3
    await social.relations.unblock(ana, "bob")
    assert (await social.relations.follow(bob, "ana")).changed
    await assert_consistent()


async def test_comments_of_hidden_users_are_left_out(social: Social, ana: Actor, bob: Actor) -> None:
    cat = await social.create_user("cat")
    post = await social.post(cat)
    await social.comments.create(bob, post.id, NewComment("hi"))
    await social.relations.block(bob, "ana")
    assert (await social.comments.page(ana, post.id, Page())).items == []
    assert len((await social.comments.page(cat, post.id, Page())).items) == 1


async def test_muting_removes_a_user_from_feeds_only(
    social: Social, ana: Actor, bob: Actor, assert_consistent: Any
) -> None:
    post = await social.post(bob)
    await social.relations.mute(ana, "bob")
    assert (await social.feeds.explore(ana, Page())).items == []
    assert (await social.posts.get(ana, post.id)).id == post.id
    assert len((await social.feeds.user_posts(ana, "bob", Page())).items) == 1
    assert [user.username for user in (await social.relations.muted(ana, Page())).items] == ["bob"]
    await assert_consistent()
    await social.relations.unmute(ana, "bob")
    assert len((await social.feeds.explore(ana, Page())).items) == 1
    await assert_consistent()


async def test_private_fields_are_returned_only_to_their_user(
    social: Social, http: httpx.AsyncClient, bob: Actor
) -> None:
    eve = await social.create_user("eve", "model", **SECRETS)
    post = await social.post(eve, "#tea")
    await social.relations.follow(eve, "bob")
    await social.relations.follow(bob, "eve")
    await social.engagements.like(eve, post.id)
    await social.comments.create(eve, post.id, NewComment("hi"))
    mine = (await http.get("/users/me", headers=social.token(eve))).json()
    assert SECRETS.items() <= mine.items()
    assert (await http.get("/users/eve", headers=social.token(eve))).json() == mine
    for path in (
        "/users/eve", "/users/eve/posts", "/users/bob/followers", "/users/bob/following", f"/posts/{post.id}",
        f"/posts/{post.id}/likes", f"/posts/{post.id}/comments", "/feed/explore", "/feed/hashtag/tea",
        "/feed/hashtag/tea/ranked", "/search/users/newest?role=model", "/search/models/top",
        "/search/hashtags/top-posts?hashtags=tea",
    ):  # fmt: skip
        for actor in (bob, ADMIN):
            answer = await http.get(path, headers=social.token(actor))
            assert answer.status_code == 200, path
            assert "eve" in answer.text, path
            assert "secret-" not in answer.text, path


async def test_only_its_user_can_change_a_profile(
    social: Social, http: httpx.AsyncClient, ana: Actor, bob: Actor, redis_client: Any
) -> None:
    mine = social.token(ana)
    answer = await http.patch("/users/me", json={"bio": "tea\nand cake", "email": None, "ssn": "1"}, headers=mine)
    assert answer.status_code == 200
    assert (answer.json()["bio"], answer.json()["ssn"], "email" in answer.json()) == ("tea\nand cake", "1", False)
    before = await redis_client.hgetall(k.USER("ana"))
    refused = await http.patch("/users/ana", json={"bio": "x"}, headers=social.token(bob))
    assert refused.status_code == 403
    for body, field in (
        ({"postCount": 5}, "postCount"), ({"role": "admin"}, "role"), ({"username": "x"}, "username"),
        ({"password": "12345678"}, "password"), ({"password_hash": "x"}, "password_hash"),
        ({"created_at": 1}, "created_at"),
        ({"display_name": "a\u0007"}, "display_name"), ({"avatar": "javascript:alert(1)"}, "avatar"),
    ):  # fmt: skip
        answer = await http.patch("/users/me", json=body, headers=mine)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert await redis_client.hgetall(k.USER("ana")) == before


async def test_an_invalid_username_is_422(social: Social, http: httpx.AsyncClient, ana: Actor) -> None:
    for name in ("a:b", "a%7Bb%7D", "x" * 31, "a%2Fb"):
        answer = await http.post(f"/users/{name}/follow", headers=social.token(ana))
        assert (answer.status_code, answer.json()["field"]) == (422, "username")
        assert answer.json()["detail"] == "A username has 1 to 30 of A-Z a-z 0-9 . _ -."


async def test_followers_are_paged_latest_first_during_changes(social: Social, ana: Actor) -> None:
    fans = [await social.create_user(f"fan{i:02}") for i in range(25)]
    for fan in fans[:20]:
        social.clock.advance(seconds=1)
        await social.relations.follow(fan, "ana")
    seen: list[str] = []
    cursor = None
    while True:
        page = await social.relations.followers(None, "ana", Page(limit=6, cursor=cursor))
        seen += [user.username for user in page.items]
        cursor = page.pagination.next_cursor
        if cursor is None:
            break
        social.clock.advance(seconds=1)
        await social.relations.follow(fans[20 + len(seen) // 6], "ana")
        await social.relations.unfollow(fans[19 - len(seen) + 1], "ana")
    assert seen == [fan.name for fan in reversed(fans[:20])]


async def test_concurrent_follows_and_blocks_keep_both_sides_consistent(social: Social, assert_consistent: Any) -> None:
    users = [await social.create_user(f"p{i}") for i in range(6)]

    async def follow_and_block(a: Actor, b: Actor) -> None:
        for operation in (
            social.relations.follow,
            social.relations.block,
            social.relations.unblock,
            social.relations.follow,
        ):
            try:
                await operation(a, b.name)
            except NotFound:
                await social.relations.unfollow(a, b.name)

    await asyncio.gather(*(follow_and_block(a, b) for a in users for b in users if a is not b))
    await assert_consistent()


async def test_own_posts_show_a_new_name_at_once(social: Social, ana: Actor) -> None:
    post = await social.post(ana)
    await social.feeds.explore(ana, Page())  # fills the cache
    await social.users.update_profile(ana, "ana", Profile(display_name="Ana the Great"))
    assert (await social.posts.get(ana, post.id)).display_name == "Ana the Great"
    assert (await social.feeds.explore(ana, Page())).items[0].post.display_name == "Ana the Great"
