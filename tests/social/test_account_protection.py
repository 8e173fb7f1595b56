"""Deleting an account needs its password, some usernames are reserved, and a block does not stop moderation."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from plaza.core.auth import API, Actor
from plaza.social.credentials import Credentials
from plaza.social.keys import USER
from plaza.social.model import NewComment, Registration
from tests.social.conftest import ADMIN, Social

PASSWORD = "correct horse"


@pytest.fixture
async def headers(social: Social) -> dict[str, str]:
    signed_in = await social.accounts.register(Registration(username="ana", password=PASSWORD))
    return {"authorization": f"Bearer {signed_in.access_token}"}


async def test_deleting_your_own_account_needs_the_password(
    http: httpx.AsyncClient, headers: dict[str, str], redis_client: Any
) -> None:
    for body in (None, {}, {"password": "wrong"}):
        refused = await http.request("DELETE", "/users/me", json=body, headers=headers)
        assert (refused.status_code, refused.json()["field"]) == (403, "password")
    assert await redis_client.exists(USER("ana"))
    deleted = await http.request("DELETE", "/users/me", json={"password": PASSWORD}, headers=headers)
    assert deleted.status_code == 200
    assert not await redis_client.exists(USER("ana"))


async def test_an_admin_deletes_another_account_without_its_password(
    social: Social, http: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    assert (await http.delete("/users/ana", headers=social.token(ADMIN))).status_code == 200


async def test_an_account_without_a_password_is_deleted_by_its_token(social: Social, http: httpx.AsyncClient) -> None:
    bob = await social.create_user("bob")
    assert (await http.delete("/users/me", headers=social.token(bob))).status_code == 200


@pytest.mark.parametrize("name", ["admin", "Admin", "support", "system", "root", "plaza", "PLAZA"])
async def test_a_reserved_username_cannot_be_registered(
    social: Social, http: httpx.AsyncClient, redis_client: Any, name: str
) -> None:
    refused = await http.post("/auth/register", json={"username": name, "password": PASSWORD})
    assert (refused.status_code, refused.json()["field"]) == (422, "username")
    synced = await http.post("/sync/users", json=[{"username": name}], headers=social.token(API))
    assert synced.json()["results"][0]["status"] == "created", "another system may have such users"


async def test_a_block_does_not_hide_a_user_from_an_admins_moderation(
    social: Social, http: httpx.AsyncClient, ana: Actor, bob: Actor
) -> None:
    admin = await social.create_user("rita", "admin")
    post = await social.post(bob, "rude #words")
    comment = await social.comments.create(bob, post.id, NewComment("rude"))
    for other in (admin, ana):
        await social.relations.block(bob, other.name)

    async def statuses(actor: Actor) -> set[int]:
        paths = ("/users/bob", f"/posts/{post.id}", f"/posts/{post.id}/likes", f"/posts/{post.id}/comments")
        return {(await http.get(path, headers=social.token(actor))).status_code for path in paths}

    async def listed(actor: Actor) -> list[bool]:
        paths = ("/users/bob/posts", "/feed/explore", "/feed/hashtag/words", "/search/users/newest")
        answers = [await http.get(path, headers=social.token(actor)) for path in paths]
        return [answer.status_code == 200 and "bob" in answer.text for answer in answers]

    assert (await statuses(admin), await listed(admin)) == ({200}, [True] * 4)
    assert (await statuses(ana), any(await listed(ana))) == ({404}, False)
    assert (await http.patch(f"/posts/{post.id}/ban", headers=social.token(admin))).status_code == 200
    assert (await http.delete(f"/posts/{post.id}/ban", headers=social.token(admin))).status_code == 200
    assert (await http.delete(f"/comments/{comment.id}", headers=social.token(admin))).status_code == 200
    assert (await http.put("/users/bob/suspension", headers=social.token(admin))).status_code == 200
    refused = await http.post(f"/posts/{post.id}/like", headers=social.token(admin))
    assert refused.status_code == 404, "a block still protects from what is not moderation"


async def test_another_providers_user_gets_no_reserved_name(social: Social, redis_client: Any) -> None:
    credentials = social.parts[Credentials]
    for name in ("admin", "Root", "PLAZA"):
        assert not await credentials.create(name, {})
        assert await redis_client.exists(USER(name)) == 0
    assert await credentials.create("ana", {})
