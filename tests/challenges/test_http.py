"""The HTTP routes of challenges, through the real application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import running
from plaza.core.auth import Auth
from plaza.core.clock import ManualClock
from plaza.core.settings import Settings
from tests.http_servers import client_of
from tests.servers import Cluster, Server

API_KEY = "the api key of the challenges' tests"
SECRET = "c" * 32
NEW = {"title": "Run every day", "category": 3, "is_public": True, "duration": 21}


@pytest.fixture
async def web(place: Server | Cluster, tmp_path: Path, stopped_clock: ManualClock) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, api_key=API_KEY, jwt_secret=SECRET, rate_limits=False)
    async with running(settings) as plaza, client_of(plaza.app) as client:
        yield client


@pytest.fixture
def today(stopped_clock: ManualClock) -> date:
    return datetime.fromtimestamp(stopped_clock.now_s(), UTC).date()


def as_(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {Auth(Settings(jwt_secret=SECRET, api_key=API_KEY)).issue(name, 'user')}"}


def refused(answer: httpx.Response, status: int, code: str = "", field: str = "") -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert not code or answer.json()["code"] == code
    assert not field or answer.json()["field"] == field


async def test_a_challenge_is_created_joined_tracked_posted_in_and_reacted_to(
    web: httpx.AsyncClient, today: date
) -> None:
    made = await web.post("/challenges", json=NEW, headers=as_("ana"))
    assert made.status_code == 201, made.text
    id = made.json()["id"]
    assert made.json() | {"created_at": 0} == {
        "id": id,
        "title": "Run every day",
        "category": 3,
        "is_public": True,
        "duration": 21,
        "creator": "ana",
        "created_at": 0,
        "finished_date": (today + timedelta(days=21)).isoformat(),
        "members": 0,
        "unit": None,
        "edited_at": None,
    }
    joined = await web.post(f"/challenges/{id}/join", headers=as_("ben"))
    assert (joined.status_code, joined.json()) == (201, {"challenge_id": id, "username": "ben", "member": True})
    refused(await web.post(f"/challenges/{id}/join", headers=as_("ben")), 409, "already_joined")
    tracked = await web.post(f"/challenges/{id}/track", headers=as_("ben"))
    assert (tracked.status_code, tracked.json()["date"]) == (201, today.isoformat())
    refused(await web.post(f"/challenges/{id}/track", json={}, headers=as_("ben")), 409, "already_tracked")
    undone = await web.delete(f"/challenges/{id}/track?date={today}", headers=as_("ben"))
    assert (undone.status_code, undone.json()["days"]) == (200, 0)
    refused(await web.delete(f"/challenges/{id}/track", headers=as_("ben")), 404, "not_tracked")
    refused(await web.post(f"/challenges/{id}/track", json={"amount": 2}, headers=as_("ben")), 422, "invalid", "amount")
    post = await web.post(f"/challenges/{id}/posts", json={"text": "5 km"}, headers=as_("ben"))
    assert (post.status_code, post.json()["text"], post.json()["is_break"]) == (201, "5 km", False)
    reaction = f"/challenges/posts/{post.json()['id']}/reaction"
    assert (await web.put(reaction, headers=as_("ana"))).json()["changed"]
    assert (await web.get(f"/challenges/{id}/posts")).json()["posts"][0]["reactions"] == 1
    assert (await web.delete(reaction, headers=as_("ana"))).json()["changed"]
    assert [c["id"] for c in (await web.get("/challenges")).json()["challenges"]] == [id]
    assert (await web.get(f"/challenges/{id}")).json()["members"] == 1
    assert (await web.delete(f"/challenges/{id}/join", headers=as_("ben"))).json()["member"] is False


async def test_a_repeated_idempotency_key_returns_the_first_response(web: httpx.AsyncClient) -> None:
    async def twice(path: str, body: dict[str, Any], who: str) -> dict[str, Any]:
        key = {"idempotency-key": path}
        first, again = [await web.post(path, json=body, headers=as_(who) | key) for _ in range(2)]
        assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
        refused(await web.post(path, json=body | {"colour": "red"}, headers=as_(who) | key), 422)
        made: dict[str, Any] = first.json()
        return made

    id = (await twice("/challenges", NEW, "ana"))["id"]
    await twice(f"/challenges/{id}/join", {}, "ben")
    await twice(f"/challenges/{id}/track", {}, "ben")
    await twice(f"/challenges/{id}/posts", {"text": "5 km"}, "ben")
    assert len((await web.get("/challenges")).json()["challenges"]) == 1
    assert len((await web.get(f"/challenges/{id}/posts")).json()["posts"]) == 1


async def test_invalid_input_is_422_with_the_field(web: httpx.AsyncClient, today: date) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"category": 6}, "category"),
        ({"category": 0}, "category"),
        ({"duration": 0}, "duration"),
        ({"duration": 10_000}, "duration"),
        ({"title": ""}, "title"),
        ({"title": "   "}, "title"),
        ({"is_public": "yes"}, "is_public"),
        ({"colour": "red"}, "colour"),
        ({"unit": "x" * 21}, "unit"),
        ({"unit": " "}, "unit"),
        ({"unit": "k\nm"}, "unit"),
        ({"title": "Run\nevery day"}, "title"),
        ({"title": "\u200b"}, "title"),
    ]
    for change, field in wrong:
        refused(await web.post("/challenges", json=NEW | change, headers=as_("ana")), 422, "invalid", field)
    refused(await web.post("/challenges", json=NEW), 401)
    refused(await web.post("/challenges", json=NEW, headers={"x-api-key": API_KEY}), 403)
    refused(await web.get("/challenges/0"), 422)
    refused(await web.get("/challenges/9"), 404)
    assert (await web.get("/challenges")).json()["challenges"] == []
    id = (await web.post("/challenges", json=NEW, headers=as_("ana"))).json()["id"]
    refused(await web.post(f"/challenges/{id}/posts", json={"text": "x"}, headers=as_("ben")), 403, "not_member")
    await web.post(f"/challenges/{id}/join", headers=as_("ben"))
    for text in (" ", "\x1b[31mDone."):
        refused(
            await web.post(f"/challenges/{id}/posts", json={"text": text}, headers=as_("ben")), 422, "invalid", "text"
        )
    future = {"date": (today + timedelta(days=1)).isoformat()}
    refused(await web.post(f"/challenges/{id}/track", json=future, headers=as_("ben")), 422, "invalid", "date")
    before = {"date": "2020-02-02"}
    refused(await web.post(f"/challenges/{id}/track", json=before, headers=as_("ben")), 422, "invalid", "date")
    rest = await web.post(f"/challenges/{id}/posts", json={"text": "ill", "is_break": True}, headers=as_("ben"))
    refused(await web.put(f"/challenges/posts/{rest.json()['id']}/reaction", headers=as_("ana")), 409, "is_break")
    closed = (await web.post("/challenges", json=NEW | {"is_public": False}, headers=as_("ana"))).json()["id"]
    refused(await web.post(f"/challenges/{closed}/join", headers=as_("ben")), 403, "private")


async def test_only_an_admin_can_run_the_daily_job(web: httpx.AsyncClient, today: date) -> None:
    await web.post("/challenges", json=NEW, headers=as_("ana"))
    refused(await web.post("/challenges/roll", headers=as_("ana")), 403)
    refused(await web.post("/challenges/roll"), 401)
    rolled = await web.post("/challenges/roll", headers={"x-api-key": API_KEY})
    assert rolled.status_code == 200, rolled.text
    assert rolled.json()["db_len"] == {"clg": 1, "mmbr": 0, "post": 0, "reaction": 0, "tracking": 0}
    assert rolled.json()["day_index"] == (today - date(1970, 1, 1)).days % 30
    again = await web.post("/challenges/roll", headers={"x-api-key": API_KEY}, json={})
    assert again.json() == rolled.json() | {"rebuilt": [], "rows": dict.fromkeys(rolled.json()["db_len"], 0)}


async def test_the_api_key_deletes_as_an_admin_and_that_is_logged(web: httpx.AsyncClient) -> None:
    key = {"x-api-key": API_KEY}
    id = (await web.post("/challenges", json=NEW | {"is_public": False}, headers=as_("ana"))).json()["id"]
    await web.post(f"/challenges/{id}/join", headers=as_("ana"))
    post = (await web.post(f"/challenges/{id}/posts", json={"text": "x"}, headers=as_("ana"))).json()["id"]
    comment = await web.post(f"/challenges/posts/{post}/comments", json={"content": "y"}, headers=as_("ana"))
    assert (await web.get(f"/challenges/{id}/invitations", headers=key)).json()["invitations"] == []
    for path in (f"/challenge-comments/{comment.json()['id']}", f"/challenges/posts/{post}", f"/challenges/{id}"):
        deleted = await web.delete(path, headers=key)
        assert deleted.status_code == 200, deleted.text
    actions = (await web.get("/admin/log", headers=key)).json()["actions"]
    assert [action["action"] for action in actions] == [
        "DELETE /challenges/{id}",
        "DELETE /challenges/posts/{id}",
        "DELETE /challenge-comments/{id}",
    ]


async def test_recommendations_have_reasons_and_no_blocked_users(web: httpx.AsyncClient) -> None:
    for name in ("ana", "ben", "cleo"):
        await web.post("/auth/register", json={"username": name, "password": f"{name} password"})
    id = (await web.post("/challenges", json=NEW, headers=as_("ana"))).json()["id"]
    posts = {}
    for name in ("ben", "cleo"):
        await web.post(f"/challenges/{id}/join", headers=as_(name))
        posts[name] = (await web.post(f"/challenges/{id}/posts", json={"text": "x"}, headers=as_(name))).json()
    await web.post("/users/cleo/block", headers=as_("ana"))
    found = await web.get("/challenges/recommendations?limit=5", headers=as_("ana"))
    assert found.json() == {"posts": [{"post": posts["ben"], "reason": "New in mind"}]}
    assert '"2 round trips"' in found.headers["server-timing"]
    await web.post("/users/ana/block", headers=as_("ben"))
    assert (await web.get("/challenges/recommendations", headers=as_("ana"))).json() == {"posts": []}
    refused(await web.get("/challenges/recommendations"), 401)
    refused(await web.get("/challenges/recommendations?limit=101", headers=as_("ana")), 422, "invalid", "limit")
    export = await web.get("/users/me/export", headers=as_("ben"))
    assert [post["text"] for post in export.json()["challenges"]["posts"]] == ["x"]
    password = {"password": "ben password"}
    assert (await web.request("DELETE", "/users/ben", json=password, headers=as_("ben"))).is_success
    assert [post["username"] for post in (await web.get(f"/challenges/{id}/posts")).json()["posts"]] == ["cleo"]
