"""Every admin action of every route is in the security log: actor, action, subject, address and result."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from plaza.accounts.tables import SECURITY_LOG
from plaza.app import Plaza, running
from plaza.core.http.access import Access
from plaza.core.http.routes import Route
from plaza.core.settings import Settings
from plaza.http_application import route_groups
from tests.accounts.conftest import PASSWORD
from tests.http_servers import client_of
from tests.servers import Server

# Bodies that routes need to do something. Without one they respond 422, which the log has too.
BODIES: dict[str, Any] = {"PATCH /users/{username}/role": {"role": "model"}}


def admin_routes() -> Iterator[Route]:
    """The writes that only admins and API keys may do, or that they may do to others' objects."""
    for group in route_groups():
        for route in group.routes:
            if not route.safe and route.access in (Access.ADMIN, Access.AUTHENTICATED, Access.API_KEY):
                yield route


def title(route: Route) -> str:
    return f"{route.method} {route.template}"


@pytest.fixture
async def plaza(server: Server, tmp_path: Any) -> AsyncIterator[Plaza]:
    async with running(Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False)) as plaza:
        yield plaza


@pytest.fixture
async def admin(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the session and the token of the admin rita. The users ana and rita exist."""
    async with client_of(plaza.app) as http:
        for name in ("ana", "rita"):
            await http.post("/auth/register", json={"username": name, "password": PASSWORD})
        key = {"x-api-key": plaza.core.settings.secret("api_key")}
        (await http.patch("/users/rita/role", json={"role": "admin"}, headers=key)).raise_for_status()
        await http.post("/shop/login", json={"username": "rita", "password": PASSWORD})
        page = await http.get("/app/articles", headers={"accept": "text/html"})
        form = re.search(r'name="csrf" value="([^"]*)"', page.text)
        assert form is not None
        http.params = {}
        http.headers["x-csrf"] = form[1]
        yield http


async def logged(plaza: Plaza, action: str) -> list[Any]:
    return list(await plaza.core.sql.fetch_all(select(SECURITY_LOG).where(SECURITY_LOG.c.action == action)))


async def call(admin: httpx.AsyncClient, plaza: Plaza, route: Route) -> httpx.Response:
    """Call a route as the admin: with a token, with the API key if only that is accepted, or with the session."""
    path = re.sub(r"{\w+}", "1", route.template.replace("{username}", "ana"))
    if route.by_cookie:
        form = {"csrf": admin.headers["x-csrf"], "on": "1"}
        return await admin.post(path, data=form, headers={"x-fragment": "1"})
    if route.access is Access.API_KEY:
        headers = {"x-api-key": plaza.core.settings.secret("api_key")}
    else:
        headers = {"authorization": f"Bearer {plaza.core.auth.issue('rita', 'admin')}"}
    body: Any = [] if route.access is Access.API_KEY else {}
    return await admin.request(route.method, path, json=BODIES.get(title(route), body), headers=headers)


async def test_every_admin_route_writes_a_log_entry(admin: httpx.AsyncClient, plaza: Plaza) -> None:
    routes = [route for route in admin_routes() if route.logged is not False]
    assert len(routes) >= 30
    # Those that end the admin's rights or the user come last.
    routes.sort(key=lambda route: (route.method == "DELETE", "{username}" in route.template))
    missing = []
    for route in routes:
        response = await call(admin, plaza, route)
        if not await logged(plaza, title(route)):
            missing.append((title(route), response.status_code, response.text[:200]))
    assert missing == []


async def test_only_routes_that_decide_it_themselves_are_not_logged() -> None:
    silent = {title(route) for route in admin_routes() if route.logged is False}
    assert silent == {"POST /", "POST /redis/write", "POST /pipeline", "POST /multi-exec", "POST /whoami"}


async def test_an_entry_has_actor_action_subject_time_address_and_result(
    admin: httpx.AsyncClient, plaza: Plaza
) -> None:
    (route,) = (route for route in admin_routes() if title(route) == "PATCH /users/{username}/role")
    before = plaza.core.clock.now_ms()
    response = await call(admin, plaza, route)
    entry = (await logged(plaza, title(route)))[-1]
    assert (entry.kind, entry.actor, entry.subject, entry.detail) == ("admin", "rita", "ana", "role=model")
    assert (entry.result, entry.request_id) == ("200", response.headers["x-request-id"])
    assert entry.address == "127.0.0.0", "truncated by default"
    assert before <= entry.at_ms <= plaza.core.clock.now_ms()


async def test_what_an_admin_does_to_others_on_pages_for_users_is_logged(
    admin: httpx.AsyncClient, plaza: Plaza
) -> None:
    ana = {"authorization": f"Bearer {plaza.core.auth.issue('ana', 'user')}"}
    post = (await admin.post("/posts", json={"content": "Hello"}, headers=ana)).json()["id"]
    comment = (await admin.post(f"/posts/{post}/comments", json={"content": "Hi"}, headers=ana)).json()["id"]
    article = (await admin.post("/articles", json={"title": "A", "link": "https://example.org"}, headers=ana)).json()[
        "id"
    ]
    new = {"title": "Private", "category": 1, "is_public": False, "duration": 9}
    challenge = (await admin.post("/challenges", json=new, headers=ana)).json()["id"]
    paths = {
        "POST /app/posts/{id}/comments/{comment}/delete": f"/app/posts/{post}/comments/{comment}/delete",
        "POST /app/posts/{id}/delete": f"/app/posts/{post}/delete",
        "POST /app/articles/{id}/delete": f"/app/articles/{article}/delete",
        "POST /app/challenges/{id}/join": f"/app/challenges/{challenge}/join",
    }
    for action, path in paths.items():
        response = await admin.post(path, data={"csrf": admin.headers["x-csrf"], "on": "1"})
        assert response.status_code == 303, (path, response.text)
        (entry,) = await logged(plaza, action)
        assert (entry.actor, entry.result) == ("rita", "303")


async def test_writes_of_an_api_key_over_the_proxy_are_logged_without_values(
    admin: httpx.AsyncClient, plaza: Plaza
) -> None:
    key = {"x-api-key": plaza.core.settings.secret("api_key")}
    commands = [["HSET", "user:ana", "bio", "secret text"], ["HGET", "user:ana", "bio"]]
    assert (await admin.post("/pipeline", json=commands, headers=key)).status_code == 200
    (entry,) = await logged(plaza, "proxy write")
    assert (entry.actor, entry.subject, entry.detail) == ("@api", "ana", "HSET bio")
    own = {"authorization": f"Bearer {plaza.core.auth.issue('ana', 'user')}"}
    assert (await admin.post("/", json=["HSET", "user:me", "bio", "mine"], headers=own)).status_code == 200
    assert len(await logged(plaza, "proxy write")) == 1, "users write only their own profiles"
