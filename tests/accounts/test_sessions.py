"""Users see all their sessions and end each of them, with its access tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.settings import Settings
from tests.accounts.conftest import ON_BOTH, PASSWORD, Account
from tests.http_servers import client_of, is_problem
from tests.servers import Server
from tests.waiting import eventually

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def bearer(signed_in: dict[str, Any]) -> dict[str, str]:
    return {"authorization": f"Bearer {signed_in['access_token']}"}


async def login(http: httpx.AsyncClient, agent: str = "curl/8.5.0") -> dict[str, Any]:
    body = {"username": "ana", "password": PASSWORD}
    response = await http.post("/auth/login", json=body, headers={"user-agent": agent})
    assert response.status_code == 200, response.text
    signed_in: dict[str, Any] = response.json()
    return signed_in


async def listed(http: httpx.AsyncClient, signed_in: dict[str, Any]) -> list[dict[str, Any]]:
    response = await http.get("/auth/sessions", headers=bearer(signed_in))
    assert response.status_code == 200, response.text
    sessions: list[dict[str, Any]] = response.json()["sessions"]
    return sessions


async def status(http: httpx.AsyncClient, signed_in: dict[str, Any]) -> int:
    return (await http.get("/whoami", headers=bearer(signed_in))).status_code


@ON_BOTH
async def test_programs_and_browsers_are_in_one_list(ana: Account, http: httpx.AsyncClient, plaza: Plaza) -> None:
    before = plaza.core.clock.now_ms()
    program = await login(http)
    body = {"username": "ana", "password": PASSWORD}
    browser = await http.post("/shop/login", json=body, headers={"user-agent": FIREFOX})
    sessions = await listed(http, program)
    assert len(sessions) == 3, "the registration's, the program's and the browser's"
    (current,) = (session for session in sessions if session["current"])
    assert (current["kind"], current["device"], current["address"]) == ("api", "curl", "127.0.0.0")
    assert before <= current["created_at"] == current["last_used_at"] <= plaza.core.clock.now_ms()
    assert current["expires_at"] > current["created_at"]
    (page,) = (session for session in sessions if session["kind"] == "browser")
    assert (page["device"], page["address"], page["current"]) == ("Firefox on Linux", "127.0.0.0", False)
    assert page["id"] == browser.json()["id"]
    secrets = [program["refresh_token"].rsplit(".", 1)[1], browser.cookies["plaza"]]
    assert not any(secret in str(sessions) for secret in secrets)


async def test_a_refresh_keeps_the_session_and_moves_its_last_use(ana: Account, http: httpx.AsyncClient) -> None:
    first = await login(http)
    (before,) = (session for session in await listed(http, first) if session["current"])
    body = {"refresh_token": first["refresh_token"]}
    refreshed = (await http.post("/auth/refresh", json=body, headers={"user-agent": FIREFOX})).json()
    (after,) = (session for session in await listed(http, refreshed) if session["current"])
    assert (after["id"], after["created_at"]) == (before["id"], before["created_at"])
    assert after["last_used_at"] >= before["last_used_at"]
    assert after["device"] == "Firefox on Linux", "the program that used it last"


@ON_BOTH
async def test_ending_a_session_ends_its_access_tokens_and_no_others(ana: Account, http: httpx.AsyncClient) -> None:
    lost, kept = await login(http), await login(http)
    (id,) = (session["id"] for session in await listed(http, lost) if session["current"])
    response = await http.delete(f"/auth/sessions/{id}", headers=bearer(kept))
    assert (response.status_code, response.content) == (204, b"")
    assert await status(http, lost) == 401
    assert await status(http, kept) == 200
    assert (await http.post("/auth/refresh", json={"refresh_token": lost["refresh_token"]})).status_code == 401
    assert (await http.post("/auth/refresh", json={"refresh_token": kept["refresh_token"]})).status_code == 200
    is_problem(await http.delete(f"/auth/sessions/{id}", headers=bearer(kept)), 404, "not_found")


async def test_ending_a_browser_session_signs_it_out(ana: Account, http: httpx.AsyncClient) -> None:
    program = await login(http)
    await http.post("/shop/login", json={"username": "ana", "password": PASSWORD})
    assert (await http.post("/shop/session")).json()["user"] == "ana"
    (id,) = (session["id"] for session in await listed(http, program) if session["kind"] == "browser")
    assert (await http.delete(f"/auth/sessions/{id}", headers=bearer(program))).status_code == 204
    assert (await http.post("/shop/session")).json()["user"] is None


@ON_BOTH
async def test_all_other_sessions_end_at_once(ana: Account, http: httpx.AsyncClient) -> None:
    others = [await login(http) for _ in range(3)]
    await http.post("/shop/login", json={"username": "ana", "password": PASSWORD})
    kept = await login(http)
    response = await http.delete("/auth/sessions", headers=bearer(kept))
    assert response.json() == {"ended": 5}
    assert [await status(http, other) for other in others] == [401, 401, 401]
    assert await status(http, kept) == 200
    assert [session["current"] for session in await listed(http, kept)] == [True]
    assert (await http.post("/shop/session")).json()["user"] is None


async def test_nobody_ends_or_sees_the_sessions_of_another_user(ana: Account, http: httpx.AsyncClient) -> None:
    response = await http.post("/auth/register", json={"username": "eve", "password": PASSWORD})
    eve = response.json()
    mine = await login(http)
    (id,) = (session["id"] for session in await listed(http, mine) if session["current"])
    is_problem(await http.delete(f"/auth/sessions/{id}", headers=bearer(eve)), 404, "not_found")
    assert id not in str(await listed(http, eve))
    assert await status(http, mine) == 200
    is_problem(await http.delete("/auth/sessions/XYZ", headers=bearer(eve)), 422, "invalid")
    # A session's id is no secret, so it must not be enough to sign its user out.
    forged = f"ana.{id}.made-up"
    assert (await http.post("/auth/logout", json={"refresh_token": forged})).status_code == 200
    assert await status(http, mine) == 200


@ON_BOTH
async def test_a_copied_refresh_token_ends_the_access_tokens_of_both(ana: Account, http: httpx.AsyncClient) -> None:
    stolen = await login(http)
    owner = (await http.post("/auth/refresh", json={"refresh_token": stolen["refresh_token"]})).json()
    assert await status(http, owner) == 200
    assert (await http.post("/auth/refresh", json={"refresh_token": stolen["refresh_token"]})).status_code == 401
    assert await status(http, owner) == 401
    assert await status(http, stolen) == 401


@ON_BOTH
async def test_a_session_that_ends_while_it_is_refreshed_gets_no_valid_token(
    ana: Account, http: httpx.AsyncClient
) -> None:
    kept = await login(http)
    for _ in range(10):
        lost = await login(http)
        (id,) = (session["id"] for session in await listed(http, lost) if session["current"])
        refreshed, _ = await asyncio.gather(
            http.post("/auth/refresh", json={"refresh_token": lost["refresh_token"]}),
            http.delete(f"/auth/sessions/{id}", headers=bearer(kept)),
        )
        if refreshed.status_code == 200:
            assert await status(http, refreshed.json()) == 401
            again = {"refresh_token": refreshed.json()["refresh_token"]}
            assert (await http.post("/auth/refresh", json=again)).status_code == 401


async def test_the_list_has_pages(ana: Account, http: httpx.AsyncClient) -> None:
    for _ in range(4):
        current = await login(http)
    first = (await http.get("/auth/sessions", params={"limit": 3}, headers=bearer(current))).json()
    query = {"limit": 3, "cursor": first["pagination"]["next_cursor"]}
    rest = (await http.get("/auth/sessions", params=query, headers=bearer(current))).json()
    ids = [session["id"] for page in (first, rest) for session in page["sessions"]]
    assert len(ids) == len(set(ids)) == 5
    assert rest["pagination"]["next_cursor"] is None


@pytest.fixture
async def other_process(server: Server, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=tmp_path, valkey_url=server.url, rate_limits=False)
    async with running(settings) as plaza:
        yield plaza


async def test_every_process_refuses_the_tokens_of_an_ended_session(
    ana: Account, http: httpx.AsyncClient, other_process: Plaza
) -> None:
    lost, kept = await login(http), await login(http)
    async with client_of(other_process.app) as elsewhere:
        assert await status(elsewhere, lost) == 200
        await http.post("/auth/logout", json={"refresh_token": lost["refresh_token"]})

        async def is_refused() -> bool:
            return await status(elsewhere, lost) == 401

        await eventually(is_refused)
        assert await status(elsewhere, kept) == 200


async def test_ended_sessions_are_in_the_log(ana: Account, http: httpx.AsyncClient, plaza: Plaza) -> None:
    program = await login(http)
    await http.delete("/auth/sessions", headers=bearer(program))
    await http.post("/auth/logout", json={"refresh_token": program["refresh_token"]})
    headers = {"x-api-key": plaza.core.settings.secret("api_key")}
    found = (await http.get("/admin/log", params={"actor": "ana", "q": "ended"}, headers=headers)).json()["actions"]
    assert [entry["action"] for entry in found] == ["session_ended", "sessions_ended"]
