"""Plaza mounted in FastAPI, Starlette and Django, as the examples do it: every address leads to Plaza and works."""

from __future__ import annotations

from collections.abc import AsyncIterator
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.responses import JSONResponse

from plaza.core.keyspace import Layout, use_layout
from plaza.embedding import AsgiPlaza
from tests.http_servers import client_of, serving
from tests.media.images import picture
from tests.pages.conftest import PageClient, ParsedPage
from tests.servers import Server

ROOT = "/community"
FEED_PAGE = 20  # posts
ADDRESSES = ("href", "src", "action", "formaction", "data-from")

HOSTS = {
    "fastapi": ("examples.embedding.fastapi_app", "app", {}),
    "starlette": ("examples.embedding.starlette_app", "app", {"PLAZA_PUBLIC_URL": f"https://plaza.example{ROOT}"}),
    "django": ("examples.embedding.django_app", "application", {"PLAZA_ROOT_PATH": ROOT}),
}


@pytest.fixture(params=HOSTS)
async def host(
    request: pytest.FixtureRequest, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """The address of an application in which Plaza is mounted."""
    module, name, environment = HOSTS[request.param]
    own = {"PLAZA_VALKEY_URL": server.url, "PLAZA_DATA_DIR": str(tmp_path), "PLAZA_RATE_LIMITS": "off"}
    async with serving(sign_in_provider) as provider:
        openid = {"ISSUER": provider, "CLIENT_ID": "plaza", "CLIENT_SECRET": "s" * 32}
        settings = {**own, **environment, **{f"PLAZA_OIDC_{name}": value for name, value in openid.items()}}
        for variable, value in settings.items():
            monkeypatch.setenv(variable, value)
        async with serving(getattr(import_module(module), name)) as url:
            yield url
    use_layout(Layout.PLAIN)


async def sign_in_provider(scope: Any, receive: Any, send: Any) -> None:
    """As much of an OpenID provider as a sign-in needs to start."""
    if scope["type"] == "http":
        issuer = f"http://{dict(scope['headers'])[b'host'].decode()}"
        await JSONResponse({"issuer": issuer, "authorization_endpoint": f"{issuer}/auth"})(scope, receive, send)


class MountedClient(PageClient):
    """A browser of a Plaza under a root path. Paths are those of the host."""

    async def visit(self, address: str) -> ParsedPage:
        """Open a page; all its addresses are Plaza's."""
        response = await self.get(address)
        assert response.status_code == 200, (address, response.text)
        parsed = ParsedPage(response.text)
        paths = [
            unescape(value) for _, element in parsed.elements for name in ADDRESSES if (value := element.get(name))
        ]
        assert paths, address
        for path in paths:
            assert path.startswith((f"{ROOT}/", "#", "https://", "data:")), (address, path)
        return parsed


def links(page: ParsedPage) -> list[str]:
    """The pages, scripts and style sheets that a page refers to."""
    found = [element.get(name, "") for _, element in page.elements for name in ("href", "src")]
    return [address.partition("#")[0] for address in found if address.startswith(f"{ROOT}/")]


async def test_every_address_has_the_prefix(host: str) -> None:
    await check_pages_and_forms(host)
    await check_api(host)
    await check_next_page(host)
    await check_sign_in_with_provider(host)


async def check_pages_and_forms(host: str) -> None:
    async with MountedClient(host) as ana:
        home = await ana.get(f"{ROOT}/")
        assert (home.status_code, home.headers["location"]) == (302, f"{ROOT}/app")
        await ana.visit(f"{ROOT}/app/sign-up")
        fields = await ana.hidden_fields(f"{ROOT}/app/sign-up")
        signed_up = await ana.post(
            f"{ROOT}/app/sign-up",
            data={**fields, "username": "ana", "password": "correct horse", "next": "/app/profile"},
        )
        assert (signed_up.status_code, signed_up.headers["location"]) == (303, f"{ROOT}/app/profile")
        assert "; Path=/; " in signed_up.headers["set-cookie"], "`__Host-` cookies must have this path"

        async def submit(path: str, **fields: str) -> httpx.Response:
            return await ana.submit(f"{ROOT}{path}", page=f"{ROOT}/app/sign-in", **fields)

        created = await submit("/app/posts", content="Hello @ana #all", next="")
        assert created.headers["location"].startswith(f"{ROOT}/app/posts/")
        await submit("/app/articles", title="A link", link="https://example.org/", groups="news")
        script = await ana.post(
            f"{ROOT}/app/challenges",
            data={**await ana.hidden_fields(f"{ROOT}/app"), "title": "Walk", "category": "1", "duration": "7"},
            headers={"x-fragment": "1"},
        )
        assert script.headers["x-next"] == f"{ROOT}/app/challenges/1"
        seen: set[str] = set()
        for start in ("/app", "/docs"):
            for link in links(await ana.visit(f"{ROOT}{start}")):
                if link not in seen and "/sign-" not in link:
                    seen.add(link)
                    assert (await ana.get(link)).status_code == 200, link
        assert len(seen) > 12
        assert any(link.endswith("/app/people/ana") for link in seen)
        outside = await ana.get("/app")
        assert outside.status_code == 404, "outside of the prefix is the application's own"


async def check_api(host: str) -> None:
    async with httpx.AsyncClient(base_url=f"{host}{ROOT}", verify=False) as api:
        account = {"username": "ben", "password": "correct horse"}
        api.headers["authorization"] = (
            f"Bearer {(await api.post('/auth/register', json=account)).json()['access_token']}"
        )
        document = (await api.get("/openapi.json")).json()
        assert document["servers"] == [{"url": ROOT}]
        assert (await api.get("/")).json()["docs"] == f"{ROOT}/docs"
        missing = await api.get("/posts/00000000-0000-0000-0000-000000000000")
        assert missing.json()["type"] == f"{ROOT}/docs#problem-not_found"
        uploaded = (await api.post("/media", files={"file": ("a.png", picture())})).json()
        small = uploaded["variants"]["small"]["url"]
        assert small == f"{ROOT}/media/{uploaded['id']}/small"
        post = (await api.post("/posts", json={"content": "Hello", "media": [uploaded["id"]]})).json()
        assert urlsplit(post["media_url"]).path == f"{ROOT}/media/{uploaded['id']}/large"
        assert (await api.get(small.removeprefix(ROOT))).status_code == 200
        for number in range(FEED_PAGE):
            assert (await api.post("/posts", json={"content": f"Post {number}"})).status_code == 201
        feed = (await api.get("/users/ben.atom")).text
        assert f'{ROOT}/users/ben.atom"' in feed
        assert f'{ROOT}/app/posts/{post["id"]}"' in feed
        page = await api.get(f"/app/posts/{post['id']}", headers={"accept": "text/html"})
        assert f'src="{ROOT}/media/{uploaded["id"]}/medium"' in page.text


async def check_next_page(host: str) -> None:
    async with MountedClient(host) as visitor:
        page = await visitor.visit(f"{ROOT}/app/people/ben")
        (following,) = [element["href"] for _, element in page.elements if element.get("rel") == "next"]
        assert following.startswith(f"{ROOT}/app/people/ben?")
        await visitor.visit(unescape(following))


async def check_sign_in_with_provider(host: str) -> None:
    async with httpx.AsyncClient(base_url=host, verify=False) as browser:
        started = await browser.get(f"{ROOT}/auth/oidc/start?next=/app/profile")
    assert started.status_code == 303, started.text
    assert f"; Path={ROOT}/auth/oidc; " in started.headers["set-cookie"], "the callback gets the cookie"
    callback = parse_qs(urlsplit(started.headers["location"]).query)["redirect_uri"][0]
    assert urlsplit(callback).path == f"{ROOT}/auth/oidc/callback"


async def test_a_plaza_that_was_not_started_says_how_to_start_it() -> None:
    async with client_of(_without_lifespan(AsgiPlaza())) as client:
        response = await client.get("/ping")
    assert response.status_code == 503
    assert "plaza.asgi.lifespan" in response.json()["detail"]


def _without_lifespan(app: AsgiPlaza) -> object:
    async def host(scope: dict[str, object], receive: object, send: object) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)  # type: ignore[arg-type]

    return host
