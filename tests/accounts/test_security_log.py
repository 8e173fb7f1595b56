"""The security log: every admin action and every sign-in, on SQLite and PostgreSQL, for admins only."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from plaza.accounts import security_log
from plaza.accounts.security_log import CSV_COLUMNS, KEPT_DAYS, SqlSecurityLog
from plaza.accounts.tables import SECURITY_LOG
from plaza.app import Plaza, running
from plaza.core import security_log as core_log
from plaza.core.clock import ManualClock
from plaza.core.errors import NotFound, OperatorError
from plaza.core.security_log import AccountLog, LogEntry
from plaza.core.settings import Settings
from tests.accounts.conftest import PASSWORD, Account
from tests.http_servers import client_of, is_problem
from tests.servers import Server
from tests.waiting import eventually


@pytest.fixture
async def plaza(server: Server, sql_settings: Settings) -> AsyncIterator[Plaza]:
    settings = replace(sql_settings, valkey_url=server.url, rate_limits=False)
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
async def admin(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    token = plaza.core.auth.issue("root", "admin")
    async with client_of(plaza.app, authorization=f"Bearer {token}") as client:
        yield client


async def entries(admin: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    response = await admin.get("/admin/log", params=query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["actions"]
    return found


async def test_an_admin_action_is_recorded_with_its_result(ana: Account, admin: httpx.AsyncClient) -> None:
    assert (await admin.patch("/users/ana/role", json={"role": "model"})).status_code == 200
    response = await admin.patch("/users/nemo/role", json={"role": "model"})
    assert response.status_code == 404
    last, first = await entries(admin, action="PATCH /users/{username}/role")
    assert (first["actor"], first["subject"], first["result"]) == ("root", "ana", "200")
    assert (first["kind"], first["detail"]) == ("admin", "role=model")
    assert first["address"] == "127.0.0.0"
    assert (last["subject"], last["result"]) == ("nemo", "404")
    assert last["request_id"] == response.headers["x-request-id"]


async def test_an_action_is_found_by_what_it_does(ana: Account, admin: httpx.AsyncClient) -> None:
    await admin.put("/users/ana/suspension")
    await admin.patch("/users/ana/role", json={"role": "model"})
    for given, found in (
        ("suspend", ["PUT /users/{username}/suspension"]),
        ("Set role", ["PATCH /users/{username}/role"]),
        ("model", ["PATCH /users/{username}/role"]),
        ("su", ["PUT /users/{username}/suspension"]),
        ("pend", []),
        ("suspend ban", []),
    ):
        assert [entry["action"] for entry in await entries(admin, q=given, kind="admin")] == found, given
    assert "/suspension" in (await admin.get("/admin/log.csv", params={"q": "suspend"})).text


async def test_an_admins_deletion_of_another_users_post_is_recorded(
    ana: Account, admin: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    post = await ana.send("/posts", 201, content="Hello")
    mine = await ana.send("/posts", 201, content="Bye")
    own = {"authorization": f"Bearer {ana.token}"}
    assert (await http.delete(f"/posts/{mine['id']}", headers=own)).status_code == 200
    assert (await admin.delete(f"/posts/{post['id']}")).status_code == 200
    (entry,) = await entries(admin, action="DELETE /posts/{id}")
    assert (entry["actor"], entry["subject"]) == ("root", post["id"])


async def test_an_action_that_cannot_be_recorded_does_not_run(
    ana: Account, admin: httpx.AsyncClient, plaza: Plaza
) -> None:
    async with plaza.core.sql.begin() as tx:
        await tx.execute(text("DROP TABLE accounts_security_log"))
    assert (await admin.patch("/users/ana/role", json={"role": "admin"})).status_code == 500
    assert await plaza.core.valkey.call("HGET", "user:ana", "role") == "user"


async def test_sign_ins_are_recorded_without_secrets(
    ana: Account, admin: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    for password in ("wrong horse battery", PASSWORD):
        await http.post("/auth/login", json={"username": "ana", "password": password})
        await http.post("/shop/login", json={"username": "ana", "password": password})
    found = await entries(admin, action="sign_in", actor="ana")
    assert [entry["result"] for entry in found] == ["done", "done", "wrong_password", "wrong_password"]
    assert "horse" not in str(found)


async def test_what_users_do_to_their_accounts_is_recorded(
    ana: Account, admin: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    own = {"authorization": f"Bearer {ana.token}"}
    assert (await http.get("/users/me/export", headers=own)).status_code == 200
    await ana.send("/auth/password", 403, old="wrong horse battery", new="new horse battery")
    await ana.send("/auth/password", old=PASSWORD, new="new horse battery")
    found = [(entry["action"], entry["result"]) for entry in await entries(admin, actor="ana", kind="account")]
    assert found == [
        ("password_changed", "done"),
        ("password_changed", "wrong_password"),
        ("data_exported", "done"),
        ("register", "done"),
    ]
    assert "horse" not in str(await entries(admin))


async def test_a_deleted_account_leaves_its_deletion_without_its_name(
    ana: Account, admin: httpx.AsyncClient, http: httpx.AsyncClient
) -> None:
    own = {"authorization": f"Bearer {ana.token}"}
    response = await http.request("DELETE", "/users/me", json={"password": PASSWORD}, headers=own)
    assert response.status_code == 200
    assert [entry["actor"] for entry in await entries(admin, action="account_deleted")] == ["@deleted"]
    assert "ana" not in str(await entries(admin))


async def test_pages_of_the_log_neither_repeat_nor_skip(admin: httpx.AsyncClient, plaza: Plaza) -> None:
    log = plaza.get(SqlSecurityLog)
    for number in range(7):
        await log.record(LogEntry("root", "test", f"subject {number}"))
    first = (await admin.get("/admin/log", params={"action": "test", "limit": 5})).json()
    await log.record(LogEntry("root", "test", "later"))
    cursor = first["pagination"]["next_cursor"]
    second = (await admin.get("/admin/log", params={"action": "test", "limit": 5, "cursor": cursor})).json()
    subjects = [entry["subject"] for page in (first, second) for entry in page["actions"]]
    assert subjects == [f"subject {number}" for number in reversed(range(7))]


async def test_filters_and_search_find_entries(admin: httpx.AsyncClient, plaza: Plaza) -> None:
    log = plaza.get(SqlSecurityLog)
    await log.record(LogEntry("ana", "sign_in", "ana", "203.0.113.9", "wrong_password"))
    await log.record(LogEntry("root", "PATCH /users/{username}/role", "ben", result="200", kind="admin"))
    await log.record(LogEntry("ben", "100%_done", "ben", detail="50% \\ off", result="done"))

    async def found(**query: Any) -> list[str]:
        return [entry["actor"] for entry in await entries(admin, **query)]

    assert await found(kind="admin") == ["root"]
    assert await found(kind="account") == ["ben", "ana"]
    assert await found(subject="ben") == ["ben", "root"]
    assert await found(result="wrong_password") == ["ana"]
    assert await found(q="SIGN") == ["ana"], "whatever the case"
    assert await found(q="203.0.113") == ["ana"]
    assert await found(q="%_d") == ["ben"], "wildcards are ordinary characters"
    assert await found(q="50% \\ o") == ["ben"]
    assert await found(q="_ole") == []
    assert await found(q="be", kind="admin") == ["root"]
    is_problem(await admin.get("/admin/log", params={"kind": "other"}), 422, "invalid")


async def test_the_log_is_exported_whole_and_safe_for_spreadsheets(
    admin: httpx.AsyncClient, plaza: Plaza, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_log, "EXPORT_BATCH", 3)
    log = plaza.get(SqlSecurityLog)
    for number in range(7):
        await log.record(LogEntry("@api:sync", "test", f"=1+{number}", kind="admin"))
    await log.record(LogEntry("ana", "sign_in"))
    response = await admin.get("/admin/log.csv", params={"kind": "admin", "limit": 2})
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in response.headers["content-disposition"]
    header, *rows = csv.reader(io.StringIO(response.text))
    assert tuple(header) == CSV_COLUMNS
    assert [row[4] for row in rows] == [f"'=1+{number}" for number in reversed(range(7))]
    assert {row[2] for row in rows} == {"'@api:sync"}


async def test_only_admins_read_the_log(ana: Account, http: httpx.AsyncClient) -> None:
    is_problem(await http.get("/admin/log"), 401, "unauthenticated")
    own = {"authorization": f"Bearer {ana.token}"}
    is_problem(await http.get("/admin/log", headers=own), 403, "forbidden")


async def test_entries_older_than_a_year_are_deleted(plaza: Plaza, clock: ManualClock) -> None:
    log = SqlSecurityLog(plaza.core.sql, clock)
    await log.record(LogEntry("root", "old"))
    clock.advance(days=KEPT_DAYS, seconds=1)
    await log.record(LogEntry("root", "new"))
    assert await log.delete_old() == 1


async def test_an_action_does_not_wait_for_a_locked_log_and_is_recorded_later(
    plaza: Plaza, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_log, "STORE_SECONDS", 0, raising=False)
    monkeypatch.setattr(core_log, "MAX_WAITING", 2, raising=False)
    log, sql = plaza.get(AccountLog), plaza.core.sql
    async with sql.begin() as tx:  # the only writer of SQLite
        if sql.dialect == "postgresql":
            await tx.execute(text(f"LOCK TABLE {SECURITY_LOG.name} IN ACCESS EXCLUSIVE MODE"))
        for action in ("sign_in", "sign_out", "one_too_many"):
            await log.record("ana", action)

    async def recorded() -> list[str]:
        return sorted(entry["action"] for entry in await entries(admin, actor="ana"))

    await eventually(lambda: _equals(recorded, ["sign_in", "sign_out"]))
    await log.record("ana", "register")
    await eventually(lambda: _equals(recorded, ["register", "sign_in", "sign_out"]))


async def _equals(read: Callable[[], Awaitable[list[str]]], expected: list[str]) -> bool:
    return await read() == expected


@pytest.mark.parametrize(
    ("error", "result"),
    [(NotFound(), "404"), (OperatorError("Another backup is running."), "failed"), (ValueError(), "500")],
)
async def test_the_result_of_an_action_says_how_it_failed(
    plaza: Plaza, admin: httpx.AsyncClient, error: Exception, result: str
) -> None:
    with pytest.raises(type(error)):
        async with plaza.get(SqlSecurityLog).recording(LogEntry("@cli:root", "plaza backup", kind="admin")):
            raise error
    assert [entry["result"] for entry in await entries(admin, action="plaza backup")] == [result]
