"""Demo accounts without a password are not admins, and lose their sessions when the demo is switched off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.auth import API
from plaza.core.settings import Settings
from plaza.demo.admin_password import PASSWORD_FILE
from plaza.demo.keys import DEMO
from plaza.demo.lifecycle import Demo
from plaza.sessions.sign_in import SignIn
from plaza.social.account_deletion import AccountDeletion
from plaza.social.accounts import Accounts
from plaza.social.inbound_sync import InboundSync, UserRecord
from plaza.social.model import PasswordLogin, Registration, WrongPassword
from plaza.social.users import Users
from tests.http_servers import serving
from tests.pages.conftest import PageClient
from tests.servers import Server

SINCE_MS = 1_700_000_000_000


@pytest.fixture
async def settings(server: Server, tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False)


@pytest.fixture
async def plaza(settings: Settings) -> AsyncIterator[Plaza]:
    """A server whose demo is loaded and on, with two of its users."""
    async with running(settings) as plaza:
        users = [
            UserRecord(username="mira", created_at=SINCE_MS - 1),
            UserRecord(username="robin", role="admin", created_at=SINCE_MS - 1),
        ]
        await plaza.get(InboundSync).apply("user", users)
        await plaza.core.valkey.call("HSET", DEMO(), "state", "loaded", "since", SINCE_MS, "on", 1)
        await plaza.get(Demo).switch(True)
        yield plaza


@pytest.fixture
def demo(plaza: Plaza) -> Demo:
    return plaza.get(Demo)


def password_in(settings: Settings) -> str:
    file = settings.data_dir / PASSWORD_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text()


async def can_sign_in(plaza: Plaza, password: str) -> bool:
    try:
        return (await plaza.get(Accounts).login(PasswordLogin("robin", password))).user.role == "admin"
    except WrongPassword:
        return False


async def test_the_admin_needs_the_password_in_the_data_directory(plaza: Plaza, demo: Demo, settings: Settings) -> None:
    assert [account.username for account in await demo.accounts("127.0.0.1")] == ["mira"]
    assert await can_sign_in(plaza, password_in(settings))
    await plaza.get(Users).set_role(API, "mira", "admin")
    assert await demo.accounts("localhost") == [], "an account that was made an admin is no longer offered"


async def test_a_proxy_without_headers_gives_its_clients_no_admin(plaza: Plaza) -> None:
    """nginx without `proxy_set_header` sends the address of its upstream as `Host`, by HTTP/1.0, and nothing else."""
    async with serving(plaza.app) as url, PageClient(url) as client:
        forwarded = {"host": url.removeprefix("http://"), "connection": "close"}
        assert "mira" in (await client.get("/app/sign-in", headers=forwarded)).text
        refused = await client.submit("/app/sign-in/as", page="/app/sign-in", **{"as": "robin"})
        assert refused.status_code == 404
        assert (await client.get("/app/operator/health")).status_code in (303, 401)


async def test_switching_the_demo_off_ends_its_sessions(plaza: Plaza, demo: Demo, settings: Settings) -> None:
    tokens = await plaza.get(Accounts).login(PasswordLogin("robin", password_in(settings)))
    cookies = {name: (await plaza.get(SignIn).admit(None, name)).token for name in ("mira", "robin")}
    async with serving(plaza.app) as url, httpx.AsyncClient(base_url=url) as http:

        async def status(path: str, **headers: str) -> int:
            return (await http.get(path, headers={"accept": "text/html", **headers})).status_code

        async def statuses() -> list[int]:
            return [
                await status("/app/operator/health", cookie=f"plaza={cookies['robin']}"),
                await status("/app/account", cookie=f"plaza={cookies['mira']}"),
                await status("/shop/cache", authorization=f"Bearer {tokens.access_token}"),
            ]

        assert await statuses() == [200, 200, 200]
        await demo.switch(False)
        assert 200 not in await statuses()
        refresh = await http.post("/auth/refresh", json={"refresh_token": tokens.refresh_token})
        assert refresh.status_code == 401
        assert not await can_sign_in(plaza, password_in(settings))
        await demo.switch(True)
        assert 200 not in await statuses(), "sessions that have ended do not come back"
    assert await can_sign_in(plaza, password_in(settings))


async def test_a_start_without_the_demo_ends_its_sessions(plaza: Plaza, settings: Settings) -> None:
    token = (await plaza.get(SignIn).admit(None, "robin")).token
    async with running(replace(settings, demo="off")) as later:
        await later.get(Demo).turn()
        assert not await can_sign_in(later, password_in(settings))
        async with serving(later.app) as url, httpx.AsyncClient(base_url=url) as http:
            headers = {"accept": "text/html", "cookie": f"plaza={token}"}
            assert (await http.get("/app/operator/health", headers=headers)).status_code != 200


async def test_a_user_who_took_the_name_keeps_the_password(plaza: Plaza, demo: Demo) -> None:
    await plaza.get(AccountDeletion).delete(API, "robin")
    await plaza.get(Accounts).register(Registration(username="robin", password="correct horse"))
    for on in (False, True):
        await demo.switch(on)
        assert (await plaza.get(Accounts).login(PasswordLogin("robin", "correct horse"))).user.role == "user"
