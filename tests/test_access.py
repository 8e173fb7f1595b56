"""Every route accepts the callers that its declaration names, and refuses all others."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.api_keys import Scope
from plaza.core.http import access
from plaza.core.http.access import Access
from plaza.core.http.bound_route import BoundRoute
from plaza.core.http.routes import Route
from plaza.core.roles import Role
from plaza.core.settings import Settings
from plaza.http_application import route_groups
from tests.http_servers import serving
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS
from tests.waiting import eventually

PASSWORD = "correct horse"
USERS = {"ana": "user", "rita": "admin"}
FORBIDDEN = {access.NOT_A_USER, access.NOT_A_KEY, access.NOT_AN_ADMIN}

NEEDS_SCOPE = "This needs an API key with the scope"

# The kinds of callers, each with the status it gets on a route of each access; None if it is accepted.
CLOSED = (Access.AUTHENTICATED, Access.USER, Access.ADMIN, Access.API_KEY, Access.EVENTS, Access.VIEWER)
BY_HEADER: dict[str, dict[Access, int | None]] = {
    "anonymous": dict.fromkeys(CLOSED, 401),
    "user token": {Access.ADMIN: 403, Access.API_KEY: 403, Access.EVENTS: 403},
    "admin token": {Access.API_KEY: 403},
    "API key": {Access.USER: 403, Access.VIEWER: 403},
    "viewer token": {**dict.fromkeys(CLOSED, 401), Access.VIEWER: None},
}
# Named API keys have fewer rights than the API key: the route must declare their scope.
SCOPED_KEYS: dict[str, Scope] = {"key to read": "read", "key to sync": "sync", "key to events": "events"}
BY_HEADER |= dict.fromkeys(SCOPED_KEYS, BY_HEADER["API key"])
BY_HEADER["wrong token"] = BY_HEADER["guest session"] = BY_HEADER["anonymous"]
BY_HEADER["user session"] = BY_HEADER["admin session"] = BY_HEADER["anonymous"]
BY_COOKIE: dict[str, dict[Access, int | None]] = {
    "guest session": {Access.USER: 401, Access.ADMIN: 401},
    "user session": {Access.ADMIN: 403},
    "admin session": {},
}


@dataclass
class Callers:
    """Credentials of every kind of caller."""

    plaza: Plaza
    http: httpx.AsyncClient
    sessions: dict[str, dict[str, str]] = field(default_factory=dict)  # cookie and form token, by kind of caller
    keys: dict[str, str] = field(default_factory=dict)  # named API keys, by kind of caller

    async def sign_in(self) -> None:
        """Start a session of a guest, a user and an admin."""
        for kind, name in (("guest session", ""), ("user session", "ana"), ("admin session", "rita")):
            self.http.cookies.clear()
            if name:
                body = {"username": name, "password": PASSWORD}
                (await self.http.post("/shop/login", json=body)).raise_for_status()
            else:
                (await self.http.post("/shop/session")).raise_for_status()
            page = await self.http.get("/app/articles", headers={"accept": "text/html"})
            form = re.search(r'name="csrf" value="([^"]*)"', page.text)
            assert form is not None
            self.sessions[kind] = {"cookie": f"plaza={self.http.cookies['plaza']}", "csrf": form[1]}
        self.http.cookies.clear()

    async def create_keys(self) -> None:
        """Create a named API key of each scope, and wait until this process knows them."""
        api_keys = self.plaza.core.auth.api_keys
        assert api_keys is not None
        for kind, scope in SCOPED_KEYS.items():
            self.keys[kind] = await api_keys.create(kind, (scope,))
        await eventually(lambda: all(map(api_keys.find, self.keys.values())))

    async def headers(self, kind: str) -> dict[str, str]:
        if kind in self.sessions:
            return {"cookie": self.sessions[kind]["cookie"]}
        auth, settings = self.plaza.core.auth, self.plaza.core.settings
        if kind == "anonymous":
            return {}
        if kind == "API key":
            return {"x-api-key": settings.secret("api_key")}
        if kind in self.keys:
            return {"x-api-key": self.keys[kind]}
        if kind == "viewer token":
            token = (await self.http.post("/analytics/viewer-token")).json()["token"]
        else:
            tokens: dict[str, tuple[str, Role]] = {"user token": ("ana", "user"), "admin token": ("rita", "admin")}
            token = auth.issue(*tokens[kind]) if kind in tokens else "wrong"
        return {"authorization": f"Bearer {token}"}

    async def refusal(self, route: Route, kind: str) -> int | None:
        """The status with which a route refuses a caller; None if it accepts the caller."""
        self.http.cookies.clear()
        headers = {"accept": "application/json", **await self.headers(kind)}
        form = {"csrf": self.sessions.get(kind, {}).get("csrf", "")} if route.by_cookie else None
        send = self.http.build_request(route.method, path_of(route), headers=headers, data=None if route.safe else form)
        answer = await self.http.send(send, stream=True)
        try:
            if answer.status_code not in (401, 403):
                return None
            await answer.aread()
        finally:
            await answer.aclose()
        if answer.status_code == 401:
            return 401
        detail = answer.json()["detail"]
        return 403 if detail in FORBIDDEN or detail.startswith(NEEDS_SCOPE) else None


def path_of(route: Route) -> str:
    """A path that the route's template matches; most of what it names does not exist."""
    return re.sub(r"{\w+}", "1", route.template)


@pytest.fixture
async def callers(server: Server, tmp_path: Path) -> AsyncIterator[Callers]:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False)
    async with (
        running(settings) as plaza,
        serving(plaza.app) as url,
        httpx.AsyncClient(base_url=url, timeout=TIME_LIMIT_SECONDS) as http,
    ):
        callers = Callers(plaza, http)
        for name, role in USERS.items():
            body = {"username": name, "password": PASSWORD}
            (await http.post("/auth/register", json=body)).raise_for_status()
            key = await callers.headers("API key")
            (await http.patch(f"/users/{name}/role", json={"role": role}, headers=key)).raise_for_status()
        await callers.sign_in()
        await callers.create_keys()
        yield callers


def routes() -> Iterator[Route]:
    for group in route_groups():
        yield from group.routes


def expected(bound: BoundRoute, kind: str) -> int | None:
    """What the declaration says: the status of the refusal, or None."""
    route = bound.route
    if route.by_cookie:
        if kind in BY_COOKIE:
            return BY_COOKIE[kind].get(route.access)
        is_form = not route.safe  # which needs the token of a session, whatever its access
        return 401 if is_form or not route.access.is_open else None
    if kind in ("wrong token", "viewer token") and bound.identifies and route.access is Access.PUBLIC:
        return 401
    if kind in SCOPED_KEYS and not route.access.is_open and SCOPED_KEYS[kind] != bound.scope:
        return 403
    return BY_HEADER[kind].get(route.access)


async def test_every_route_accepts_the_callers_it_declares_and_no_others(callers: Callers) -> None:
    wrong: list[tuple[Any, ...]] = []
    for route in routes():
        found_leaf = callers.plaza.app.router.find(path_of(route))
        assert found_leaf is not None
        endpoint = callers.plaza.app.bind(found_leaf[0].methods[route.method])
        for kind in BY_HEADER:
            found = await callers.refusal(route, kind)
            declared = expected(endpoint, kind)
            if found != declared:
                wrong.append((route.method, route.template, route.access.name, kind, found, declared))
        if route.template.endswith(("logout", "sign-out")):
            await callers.sign_in()
    assert not wrong, "\n".join(map(str, wrong))


def test_operators_pages_are_for_admins() -> None:
    declared = {route.access for route in routes() if route.template.startswith("/app/operator")}
    assert declared == {Access.ADMIN}
