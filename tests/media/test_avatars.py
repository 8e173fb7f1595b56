"""Avatars: a picture in the documented field `avatar`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plaza.app import Plaza, running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.social.account_renaming import AccountRenaming
from plaza.social.keys import POST, USER
from tests.http_servers import client_of, is_problem
from tests.media.conftest import PictureUser, register

# One Valkey and one store: `test_post_pictures.py` shows that the others make no difference.
pytestmark = pytest.mark.parametrize("place", ["server"], indirect=True)


async def test_an_avatar_is_in_the_profile_and_in_every_post(
    ana: PictureUser, guest: PictureUser, redis_client: Any
) -> None:
    post = await ana.json("POST", "/posts", 201, content="before")
    id = (await ana.upload())["id"]
    user = await ana.json("PUT", "/users/me/avatar", media=id)
    assert user["avatar"] == f"/media/{id}/small"
    assert await redis_client.hget(USER("ana"), "avatar") == f"/media/{id}/small"
    assert await redis_client.hget(POST(post["id"]), "avatar") == f"/media/{id}/small"
    shown = await guest.call("GET", user["avatar"])
    assert shown.headers["content-type"] == "image/webp"


async def test_a_removed_or_replaced_avatar_is_gone_at_once(ana: PictureUser, guest: PictureUser) -> None:
    first, second = (await ana.upload())["id"], (await ana.upload())["id"]
    await ana.json("PUT", "/users/me/avatar", media=first)
    assert await guest.sees(first)
    await ana.json("PUT", "/users/me/avatar", media=second)
    assert [await guest.sees(id) for id in (first, second)] == [False, True]
    assert (await ana.json("DELETE", "/users/me/avatar"))["avatar"] == ""
    assert not await guest.sees(second)


async def test_only_ones_own_picture_becomes_an_avatar(ana: PictureUser, ben: PictureUser) -> None:
    id = (await ana.upload())["id"]
    problem = is_problem(await ben.call("PUT", "/users/me/avatar", 422, json={"media": id}), 422, "invalid")
    assert problem["field"] == "media"
    missing = {"media": "00000000-0000-4000-8000-000000000000"}
    is_problem(await ben.call("PUT", "/users/me/avatar", 422, json=missing), 422, "invalid")


async def test_the_address_of_another_users_picture_does_not_keep_it_visible(
    ana: PictureUser, ben: PictureUser, guest: PictureUser
) -> None:
    """Otherwise one user could keep what another has deleted, or what was banned."""
    id = (await ana.upload())["id"]
    await ana.json("PUT", "/users/me/avatar", media=id)
    await ben.json("PATCH", "/users/me", avatar=f"/media/{id}/small")
    assert await guest.sees(id)
    await ana.json("DELETE", "/users/me/avatar")
    assert not await guest.sees(id)


async def test_everything_with_an_author_has_the_avatar(ana: PictureUser, ben: PictureUser) -> None:
    id = (await ana.upload())["id"]
    user = await ana.json("PUT", "/users/me/avatar", media=id)
    post = (await ben.json("POST", "/posts", 201, content="Hello"))["id"]
    article = (await ben.json("POST", "/articles", 201, title="News", link="https://example.org/"))["id"]
    run = {"title": "Run", "category": 1, "is_public": True, "duration": 9}
    challenge = (await ben.json("POST", "/challenges", 201, **run))["id"]
    await ana.json("POST", f"/challenges/{challenge}/join", 201)
    made = [
        await ana.json("POST", f"/posts/{post}/comments", 201, content="Hi"),
        await ana.json("POST", f"/articles/{article}/comments", 201, content="Hi"),
        await ana.json("POST", f"/challenges/{challenge}/posts", 201, text="Done"),
    ]
    listed = [
        (await ben.call("GET", f"/posts/{post}/comments")).json()["comments"][0],
        (await ben.call("GET", f"/articles/{article}/comments")).json()["comments"][0],
        (await ben.call("GET", f"/challenges/{challenge}/posts")).json()["posts"][0],
        (await ben.call("GET", "/challenges/recommendations")).json()["posts"][0]["post"],
    ]
    assert [each["avatar"] for each in made + listed] == [user["avatar"]] * 7


async def test_the_address_of_ones_own_picture_keeps_it_too(ana: PictureUser, guest: PictureUser) -> None:
    """`avatar` is the documented field: clients set it by `PATCH` as before."""
    id = (await ana.upload())["id"]
    await ana.json("PATCH", "/users/me", avatar=f"/media/{id}/small")
    assert await guest.sees(id)


async def test_deleting_the_picture_removes_the_avatar(ana: PictureUser, guest: PictureUser) -> None:
    id = (await ana.upload())["id"]
    await ana.json("PUT", "/users/me/avatar", media=id)
    await ana.call("DELETE", f"/media/{id}")
    assert (await guest.json("GET", "/users/ana"))["avatar"] == ""
    assert not await guest.sees(id)


async def test_with_a_public_url_the_address_is_absolute(settings: Settings) -> None:
    async with running(replace(settings, public_url="https://plaza.example/")) as plaza, client_of(plaza.app) as http:
        ana = await register(plaza, http, "ana")
        id = (await ana.upload())["id"]
        user = await ana.json("PUT", "/users/me/avatar", media=id)
        assert user["avatar"] == f"https://plaza.example/media/{id}/small"
        assert await PictureUser(http, "", {}).sees(id)
    use_layout(Layout.PLAIN)


async def test_an_avatar_stays_when_its_user_is_renamed(plaza: Plaza, ana: PictureUser, guest: PictureUser) -> None:
    id = (await ana.upload())["id"]
    await ana.json("PUT", "/users/me/avatar", media=id)
    assert await guest.sees(id)
    await plaza.get(AccountRenaming).rename("ana", "anna")
    assert (await guest.json("GET", "/users/anna"))["avatar"] == f"/media/{id}/small"
    assert await guest.sees(id)
