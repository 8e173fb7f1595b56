"""Operators find users by name, role and state. The list follows all profiles, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.auth import API
from plaza.core.settings import Settings
from plaza.desk import directory as directory_module
from plaza.desk.directory import UserDirectory
from plaza.desk.model import ListedUsersQuery
from plaza.social.account_deletion import AccountDeletion
from plaza.social.account_renaming import AccountRenaming
from plaza.social.keys import USER
from plaza.social.users import Users
from tests.http_servers import client_of
from tests.servers import Cluster, Server

API_KEY = "the api key of the desk's tests"
KEY = {"x-api-key": API_KEY}

in_pairs = pytest.mark.parametrize(
    ("place", "sql_settings"), [("server", "postgresql"), ("cluster", "sqlite")], indirect=True
)


@pytest.fixture
async def plaza(place: Server | Cluster, sql_settings: Settings, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(
        data_dir=sql_settings.data_dir,
        database_url=sql_settings.database_url,
        valkey_url=place.url,
        api_key=API_KEY,
        rate_limits=False,
    )
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        yield client


async def register(http: httpx.AsyncClient, *names: str) -> dict[str, str]:
    """Create users; returns the tokens by name."""
    tokens = {}
    for name in names:
        response = await http.post("/auth/register", json={"username": name, "password": "correct horse battery"})
        assert response.status_code == 201, response.text
        tokens[name] = response.json()["access_token"]
    return tokens


async def listed(http: httpx.AsyncClient, **query: Any) -> list[str]:
    """All users that match, through pages of two."""
    names: list[str] = []
    cursor = None
    while True:
        params = {"limit": 2, **query, **({"cursor": cursor} if cursor else {})}
        response = await http.get("/admin/users", params=params, headers=KEY)
        assert response.status_code == 200, response.text
        names += [user["username"] for user in response.json()["users"]]
        cursor = response.json()["pagination"]["next_cursor"]
        if cursor is None:
            return names


@in_pairs
async def test_users_are_found_by_prefix_role_and_state(
    plaza: Plaza, http: httpx.AsyncClient, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "BATCH", 2)
    directory, users = plaza.get(UserDirectory), plaza.get(Users)
    await register(http, "ana", "Anton", "an.na", "ben", "zoe")
    await redis_client.hset(USER("from-elsewhere"), mapping={"username": "from-elsewhere", "created_at": "odd"})
    await users.set_role(API, "ben", "admin")
    await users.suspend(API, "Anton", on=True)
    assert await directory.rebuild() == 6
    assert await directory.rebuild() == 0
    assert await listed(http, q="AN") == ["an.na", "ana", "Anton"]
    assert await listed(http, q="an", state="active") == ["an.na", "ana"]
    assert await listed(http, q="%") == await listed(http, q="anx") == []
    assert await listed(http, role="admin") == ["ben"]
    assert await listed(http, state="suspended") == ["Anton"]
    everyone = await listed(http)
    assert everyone[:2] == ["zoe", "ben"], "newest first"
    assert (len(everyone), everyone[-1]) == (6, "from-elsewhere")
    user = (await http.get("/admin/users/Anton", headers=KEY)).json()
    assert (user["role"], user["suspended_at"] is not None) == ("user", True)
    assert (await http.get("/admin/users/zacharias", headers=KEY)).status_code == 404
    wrong = await http.get("/admin/users", params={"role": "king"}, headers=KEY)
    assert (wrong.status_code, wrong.json()["field"]) == (422, "role")


@in_pairs
async def test_renamed_and_deleted_users_leave_the_list_and_notes_follow(plaza: Plaza, http: httpx.AsyncClient) -> None:
    tokens = await register(http, "ana", "ben", "olga")
    await plaza.get(Users).set_role(API, "olga", "admin")
    sign_in = {"username": "olga", "password": "correct horse battery"}
    olga = {"authorization": f"Bearer {(await http.post('/auth/login', json=sign_in)).json()['access_token']}"}
    for name, text in (("ana", "Kind."), ("ben", "Rude.")):
        key = {**olga, "idempotency-key": f"note-{name}"}
        for _ in range(2):
            made = await http.post(f"/admin/users/{name}/notes", json={"text": text}, headers=key)
            assert made.status_code == 201, made.text
    notes = (await http.get("/admin/users/ana/notes", headers=olga)).json()["notes"]
    assert [(note["text"], note["author"]) for note in notes] == [("Kind.", "olga")]
    directory = plaza.get(UserDirectory)
    await directory.rebuild()
    await plaza.get(AccountRenaming).rename("ana", "anna")
    await plaza.get(AccountDeletion).delete(API, "ben")
    await directory.rebuild()
    assert sorted(user.username for user in (await directory.page(ListedUsersQuery())).users) == ["anna", "olga"]
    moved = (await http.get("/admin/users/anna/notes", headers=olga)).json()["notes"]
    assert [note["text"] for note in moved] == ["Kind."]
    assert (await http.get("/admin/users/ben/notes", headers=olga)).json()["notes"] == []
    missing = await http.post("/admin/users/ben/notes", json={"text": "Gone."}, headers=olga)
    assert missing.status_code == 404
    id = moved[0]["id"]
    assert (await http.delete(f"/admin/users/olga/notes/{id}", headers=olga)).status_code == 404
    assert (await http.delete(f"/admin/users/anna/notes/{id}", headers=olga)).status_code == 204
    assert (await http.get("/admin/users", headers={"authorization": f"Bearer {tokens['olga']}"})).status_code == 401


@in_pairs
async def test_a_note_is_in_the_export_of_its_user_and_sessions_are_ended(
    plaza: Plaza, http: httpx.AsyncClient
) -> None:
    tokens = await register(http, "ana")
    own = {"authorization": f"Bearer {tokens['ana']}"}
    await http.post("/admin/users/ana/notes", json={"text": "Kind."}, headers=KEY)
    exported = (await http.get("/users/me/export", headers=own)).json()
    assert [note["text"] for note in exported["desk"]["notes"]] == ["Kind."]
    sessions = (await http.get("/admin/users/ana/sessions", headers=KEY)).json()["sessions"]
    assert [session["kind"] for session in sessions] == ["api"]
    path = f"/admin/users/ana/sessions/{sessions[0]['id']}"
    assert (await http.delete(path, headers=KEY)).status_code == 204
    assert (await http.delete(path, headers=KEY)).status_code == 404
    assert (await http.get("/whoami", headers=own)).status_code == 401
    sign_in = {"username": "ana", "password": "correct horse battery"}
    for _ in range(2):
        await http.post("/auth/login", json=sign_in)
    assert (await http.delete("/admin/users/ana/sessions", headers=KEY)).json() == {"ended": 2}
