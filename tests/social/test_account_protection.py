"""Deleting an account needs its password, and some usernames cannot be registered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from plaza.core.auth import API
from plaza.social.keys import USER
from plaza.social.model import Registration
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
