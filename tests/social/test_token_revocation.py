"""A role change, a password change and a logout end the access tokens that were issued before."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from plaza.core.auth import API, Actor
from plaza.core.errors import Forbidden
from plaza.social.keys import AUTH_USER, USER
from plaza.social.model import Registration, SignedIn
from tests.social.conftest import ADMIN, Social

REGISTRATION = Registration(username="ana", password="correct horse")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
async def signed_in(social: Social) -> SignedIn:
    signed_in = await social.accounts.register(REGISTRATION)
    social.clock.advance(seconds=1)
    return signed_in


async def status(http: httpx.AsyncClient, token: str) -> int:
    return (await http.get("/whoami", headers=bearer(token))).status_code


async def test_a_demoted_admin_cannot_become_an_admin_again(
    social: Social, http: httpx.AsyncClient, signed_in: SignedIn
) -> None:
    await social.users.set_role(API, "ana", "admin")
    login = {"username": "ana", "password": "correct horse"}
    admin = (await http.post("/auth/login", json=login)).json()["access_token"]
    social.clock.advance(seconds=1)
    assert (await http.patch("/users/ana/role", json={"role": "user"}, headers=social.token(API))).status_code == 200
    again = await http.patch("/users/ana/role", json={"role": "admin"}, headers=bearer(admin))
    assert again.status_code == 401
    assert (await http.get("/users/ana")).json()["role"] == "user"


async def test_a_role_change_needs_the_stored_role_of_an_admin(social: Social, http: httpx.AsyncClient) -> None:
    await social.create_user("ana", "user")
    await social.create_user("bob", "admin")
    claims_admin = social.token(Actor("ana", "admin"))  # as issued by another service
    refused = await http.patch("/users/ana/role", json={"role": "admin"}, headers=claims_admin)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    with pytest.raises(Forbidden):
        await social.users.set_role(Actor("ana", "admin"), "bob", "user")
    for admin in (Actor("bob", "admin"), ADMIN, API):  # ADMIN has no profile, so the role of the token counts
        assert (await social.users.set_role(admin, "ana", "model")).role == "model"
        await social.users.set_role(admin, "ana", "user")


async def test_a_suspended_admin_cannot_end_the_suspension(social: Social, http: httpx.AsyncClient) -> None:
    await social.create_user("ana", "admin")
    await social.users.suspend(API, "ana", on=True)
    social.clock.advance(seconds=1)
    issued_later = social.token(Actor("ana", "admin"))  # by another service
    for refused in (
        await http.delete("/users/ana/suspension", headers=issued_later),
        await http.patch("/users/ana/role", json={"role": "admin"}, headers=issued_later),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert await social.valkey.call("HEXISTS", AUTH_USER("ana"), "suspended_at") == 1


async def test_a_demotion_wins_against_the_admins_own_simultaneous_requests(social: Social) -> None:
    await social.create_user("ana", "admin")
    ana = Actor("ana", "admin")
    demotion = social.users.set_role(API, "ana", "user")
    own = [social.users.set_role(ana, "ana", "admin") for _ in range(20)]
    await asyncio.gather(*own[:10], demotion, *own[10:], return_exceptions=True)
    assert await social.valkey.call("HGET", USER("ana"), "role") == "user"


async def test_a_role_change_ends_tokens_but_setting_the_same_role_does_not(
    social: Social, http: httpx.AsyncClient, signed_in: SignedIn
) -> None:
    await social.users.set_role(API, "ana", "user")
    assert await status(http, signed_in.access_token) == 200
    await social.users.set_role(API, "ana", "model")
    assert await status(http, signed_in.access_token) == 401
    refreshed = await http.post("/auth/refresh", json={"refresh_token": signed_in.refresh_token})
    assert refreshed.json()["user"]["role"] == "model"
    assert await status(http, refreshed.json()["access_token"]) == 200


async def test_a_synced_role_change_ends_tokens(
    social: Social, http: httpx.AsyncClient, signed_in: SignedIn, redis_client: Any
) -> None:
    sent = await http.post("/sync/users", json=[{"username": "ana", "role": "model"}], headers=social.token(API))
    assert sent.status_code == 200
    assert await redis_client.hget(USER("ana"), "role") == "model"
    assert await status(http, signed_in.access_token) == 401


async def test_a_password_change_ends_earlier_tokens(
    social: Social, http: httpx.AsyncClient, signed_in: SignedIn
) -> None:
    body = {"old": "correct horse", "new": "battery staple"}
    changed = await http.post("/auth/password", json=body, headers=bearer(signed_in.access_token))
    assert await status(http, signed_in.access_token) == 401
    assert await status(http, changed.json()["access_token"]) == 200


@pytest.mark.parametrize("everywhere", [False, True])
async def test_a_logout_ends_access_tokens(
    social: Social, http: httpx.AsyncClient, signed_in: SignedIn, everywhere: bool
) -> None:
    body = {} if everywhere else {"refresh_token": signed_in.refresh_token}
    headers = bearer(signed_in.access_token)
    assert (await http.post("/auth/logout", json=body, headers=headers)).status_code == 200
    assert await status(http, signed_in.access_token) == 401


async def test_an_invalid_refresh_token_ends_no_session(
    social: Social, http: httpx.AsyncClient, signed_in: SignedIn
) -> None:
    made_up = f"ana.{'0' * 32}.secret"
    assert (await http.post("/auth/logout", json={"refresh_token": made_up})).status_code == 200
    assert await status(http, signed_in.access_token) == 200
