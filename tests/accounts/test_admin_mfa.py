"""`PLAZA_REQUIRE_ADMIN_MFA`: admins use their rights only with a second factor."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pyotp
import pytest

from plaza.app import Plaza, running
from plaza.core.settings import Settings
from tests.accounts.authenticator import Authenticator
from tests.accounts.conftest import PASSWORD
from tests.http_servers import client_of, is_problem
from tests.servers import Server
from tests.waiting import eventually


def settings(server: Server, folder: Path) -> Settings:
    url = "https://plaza.example"
    return Settings(data_dir=folder, valkey_url=server.url, rate_limits=False, public_url=url, require_admin_mfa=True)


@pytest.fixture
async def plaza(server: Server, tmp_path: Path) -> AsyncIterator[Plaza]:
    async with running(settings(server, tmp_path)) as plaza:
        yield plaza


@pytest.fixture
async def rita(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the token of the admin rita, and her session cookie. The user ana exists."""
    async with client_of(plaza.app) as http:
        for name in ("ana", "rita"):
            await http.post("/auth/register", json={"username": name, "password": PASSWORD})
        key = {"x-api-key": plaza.core.settings.secret("api_key")}
        assert (await http.patch("/users/rita/role", json={"role": "admin"}, headers=key)).status_code == 200
        login = {"username": "rita", "password": PASSWORD}
        await http.post("/shop/login", json=login)
        token = (await http.post("/auth/login", json=login)).json()["access_token"]
        http.headers["authorization"] = f"Bearer {token}"
        yield http


async def enable_codes(http: httpx.AsyncClient) -> list[str]:
    secret = (await http.post("/auth/mfa/totp", json={"password": PASSWORD})).json()["secret"]
    codes: list[str] = (await http.post("/auth/mfa/totp/confirm", json={"code": pyotp.TOTP(secret).now()})).json()[
        "recovery_codes"
    ]
    return codes


async def test_an_admin_without_a_second_factor_is_an_ordinary_user(rita: httpx.AsyncClient) -> None:
    is_problem(await rita.put("/users/ana/suspension"), 403, "admin_mfa_required")
    is_problem(await rita.get("/admin/log"), 403, "admin_mfa_required")
    is_problem(await rita.delete("/users/ana"), 403, "admin_mfa_required")
    assert (await rita.post("/posts", json={"content": "Hello"})).status_code == 201
    assert (await rita.get("/whoami")).json()["role"] == "admin"


async def test_a_token_from_before_works_once_there_is_a_second_factor(rita: httpx.AsyncClient) -> None:
    codes = await enable_codes(rita)
    assert (await rita.put("/users/ana/suspension")).status_code == 200
    body = {"password": PASSWORD, "code": codes[0]}
    assert (await rita.post("/auth/mfa/totp/remove", json=body)).status_code == 200
    is_problem(await rita.put("/users/ana/suspension"), 403, "admin_mfa_required")


async def test_a_passkey_is_a_second_factor_too(rita: httpx.AsyncClient) -> None:
    options = (await rita.post("/auth/passkeys/options", json={"password": PASSWORD})).json()["options"]
    body = {"name": "Key", "credential": Authenticator().create(options)}
    assert (await rita.post("/auth/passkeys", json=body)).status_code == 201
    assert (await rita.put("/users/ana/suspension")).status_code == 200


async def test_api_keys_need_no_second_factor(rita: httpx.AsyncClient, plaza: Plaza) -> None:
    async with client_of(plaza.app, **{"x-api-key": plaza.core.settings.secret("api_key")}) as server:
        assert (await server.put("/users/ana/suspension")).status_code == 200


async def test_an_admin_of_another_issuer_needs_one_here(rita: httpx.AsyncClient, plaza: Plaza) -> None:
    async with client_of(plaza.app, authorization=f"Bearer {plaza.core.auth.issue('root', 'admin')}") as root:
        is_problem(await root.put("/users/ana/suspension"), 403, "admin_mfa_required")


async def test_pages_lead_to_the_set_up(rita: httpx.AsyncClient) -> None:
    pages = {"accept": "text/html"}
    refused = await rita.get("/app/operator/log", headers=pages)
    assert refused.status_code == 403
    assert 'href="/app/security"' in refused.text
    home = (await rita.get("/app/articles", headers=pages)).text
    assert 'href="/app/operator"' in home, "the way there is not hidden"
    csrf = re.search(r'name="csrf" value="([^"]*)"', home)
    assert csrf is not None
    form = {"csrf": csrf[1], "on": "1"}
    banned = await rita.post("/app/people/ana/suspend", data=form, headers={"x-fragment": "1"})
    is_problem(banned, 403, "admin_mfa_required")
    await enable_codes(rita)
    assert (await rita.get("/app/operator/log", headers=pages)).status_code == 200


async def test_every_process_notices_a_removed_second_factor(
    rita: httpx.AsyncClient, server: Server, tmp_path: Path
) -> None:
    codes = await enable_codes(rita)
    async with running(settings(server, tmp_path)) as other, client_of(other.app) as elsewhere:
        elsewhere.headers["authorization"] = rita.headers["authorization"]
        assert (await elsewhere.get("/admin/log")).status_code == 200
        await rita.post("/auth/mfa/totp/remove", json={"password": PASSWORD, "code": codes[0]})

        async def is_refused() -> bool:
            return (await elsewhere.get("/admin/log")).status_code == 403

        await eventually(is_refused)
