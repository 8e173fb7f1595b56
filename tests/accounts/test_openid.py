"""Signing in with a real OpenID provider: code flow with PKCE, and what an attacker might try on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from plaza.accounts.keys import ACCOUNT_IDENTITIES
from plaza.app import Plaza, running
from plaza.core.settings import Settings
from plaza.social.account_renaming import AccountRenaming
from tests.http_servers import is_problem, serving
from tests.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcProvider, oidc_provider
from tests.servers import Server

CALLBACK = "https://plaza.example/auth/oidc/callback"


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider(CALLBACK) as provider:
        yield provider


@pytest.fixture
async def plaza(server: Server, provider: OidcProvider, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(
        data_dir=tmp_path,
        valkey_url=server.url,
        rate_limits=False,
        public_url="https://plaza.example",
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
    )
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
async def url(plaza: Plaza) -> AsyncIterator[str]:
    async with serving(plaza.app) as url:
        yield url


class Browser(httpx.AsyncClient):
    """A browser that signs in. Redirects are followed by hand, because the callback's host is not real."""

    def __init__(self, url: str, provider: OidcProvider) -> None:
        super().__init__(base_url=url, timeout=60, verify=False)
        self.provider = provider

    async def begin(self, next: str = "/app") -> str:
        """Start a sign-in and return the provider's address."""
        response = await self.get("/auth/oidc/start", params={"next": next})
        assert response.status_code == 303, response.text
        return response.headers["location"]

    async def callback(self, address: str) -> httpx.Response:
        parts = urlsplit(address)
        return await self.get(f"{parts.path}?{parts.query}")

    async def sign_in(self, login: str, next: str = "/app") -> httpx.Response:
        url = await self.begin(next)
        async with httpx.AsyncClient(timeout=60, verify=False) as at_provider:
            return await self.callback(await self.provider.sign_in(at_provider, url, login))

    async def username(self) -> str | None:
        user: str | None = (await self.post("/shop/session")).json()["user"]
        return user


@pytest.fixture
async def browser(url: str, provider: OidcProvider) -> AsyncIterator[Browser]:
    async with Browser(url, provider) as browser:
        yield browser


async def test_a_new_identity_gets_an_account_and_a_session(browser: Browser, plaza: Plaza) -> None:
    response = await browser.sign_in("ana", next="/app/articles?order=time")
    assert (response.status_code, response.headers["location"]) == (303, "/app/articles?order=time")
    assert await browser.username() == "ana"
    profile = (await browser.get("/users/ana")).json()
    assert profile["display_name"] == "ana of the provider"
    login = {"username": "ana", "password": ""}
    assert (await browser.post("/auth/login", json={**login, "password": "any"})).status_code == 401


async def test_the_same_identity_finds_its_account_again(browser: Browser, url: str, provider: OidcProvider) -> None:
    await browser.sign_in("ana")
    async with Browser(url, provider) as other_device:
        await other_device.sign_in("ana")
        assert await other_device.username() == "ana"


async def test_a_taken_name_is_never_taken_over(browser: Browser) -> None:
    registered = {"username": "ana", "password": "correct horse", "email": "ana@example.org"}
    assert (await browser.post("/auth/register", json=registered)).status_code == 201
    await browser.sign_in("ana")
    assert await browser.username() == "ana-2"


async def test_a_callback_in_another_browser_is_refused(browser: Browser, url: str, provider: OidcProvider) -> None:
    address = await browser.begin()
    async with httpx.AsyncClient(timeout=60, verify=False) as at_provider:
        callback = await provider.sign_in(at_provider, address, "eve")
    async with Browser(url, provider) as victim:
        is_problem(await victim.callback(callback), 400, "sign_in_refused")
        await victim.begin()  # a state of their own does not help either
        is_problem(await victim.callback(callback), 400, "sign_in_refused")
        assert await victim.username() is None


async def test_a_callback_works_once(browser: Browser, provider: OidcProvider) -> None:
    address = await browser.begin()
    async with httpx.AsyncClient(timeout=60, verify=False) as at_provider:
        callback = await provider.sign_in(at_provider, address, "ana")
    responses = await asyncio.gather(*(browser.callback(callback) for _ in range(5)))
    assert sorted(response.status_code for response in responses) == [303, 400, 400, 400, 400]


async def test_a_made_up_code_is_refused(browser: Browser) -> None:
    state = parse_qs(urlsplit(await browser.begin()).query)["state"][0]
    response = await browser.get("/auth/oidc/callback", params={"state": state, "code": "made-up"})
    is_problem(response, 400, "sign_in_refused")
    state = parse_qs(urlsplit(await browser.begin()).query)["state"][0]
    denied = await browser.get("/auth/oidc/callback", params={"state": state, "error": "access_denied"})
    is_problem(denied, 400, "sign_in_refused")


@pytest.mark.parametrize("next", ["https://evil.example", "//evil.example", "/app\\evil", "/application"])
async def test_only_pages_of_this_site_are_redirected_to(browser: Browser, next: str) -> None:
    assert (await browser.sign_in("ana", next)).headers["location"] == "/app"


async def test_an_identity_follows_a_renaming_and_goes_with_the_account(browser: Browser, plaza: Plaza) -> None:
    await browser.sign_in("ana")
    await plaza.get(AccountRenaming).rename("ana", "anna")
    await browser.sign_in("ana")
    assert await browser.username() == "anna"
    key = {"x-api-key": plaza.core.settings.secret("api_key")}
    assert (await browser.delete("/users/anna", headers=key)).status_code in (200, 202)
    assert await plaza.core.valkey.call("EXISTS", ACCOUNT_IDENTITIES("anna")) == 0
    await browser.sign_in("ana")
    assert await browser.username() == "ana"


async def test_a_provider_that_is_away_is_503(server: Server, tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path,
        valkey_url=server.url,
        rate_limits=False,
        oidc_issuer="http://127.0.0.1:1",
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=CLIENT_SECRET,
    )
    async with running(settings) as plaza, serving(plaza.app) as url, httpx.AsyncClient(base_url=url) as http:
        is_problem(await http.get("/auth/oidc/start"), 503, "provider_failed")


async def test_without_a_provider_the_routes_are_404(server: Server, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False)
    async with running(settings) as plaza, serving(plaza.app) as url, httpx.AsyncClient(base_url=url) as http:
        is_problem(await http.get("/auth/oidc/start"), 404, "not_found")
