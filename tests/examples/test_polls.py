"""The example domain of the tutorial works on one server and on a cluster, and its tutorial shows its code."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.polls.domain import DOMAIN
from examples.polls.keys import POLL, POLL_VOTES, POLLS_POPULAR, USER_POLLS
from examples.polls.personal_data import PollsPersonalData
from plaza.app import DOMAINS, Plaza, running
from plaza.core.keyspace import Layout, use_layout
from plaza.core.settings import Settings
from plaza.keyspace.audit import REPAIR, Audits
from tests.http_servers import client_of
from tests.servers import Cluster, Server

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorials" / "write-a-domain.md"
NEW_POLL = {"question": "Tea or coffee?", "options": ["Tea", "Coffee"]}


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(data_dir=tmp_path, valkey_url=place.url, rate_limits=False)
    async with running(settings, [*DOMAINS, DOMAIN]) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        yield client


def bearer(plaza: Plaza, name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {plaza.core.auth.issue(name, 'user')}"}


async def create(plaza: Plaza, http: httpx.AsyncClient) -> str:
    created = await http.post("/polls", json=NEW_POLL, headers=bearer(plaza, "ana"))
    assert created.status_code == 201, created.text
    return str(created.json()["id"])


async def test_a_user_has_one_vote_and_the_most_voted_poll_is_first(plaza: Plaza, http: httpx.AsyncClient) -> None:
    await create(plaza, http)
    id = await create(plaza, http)
    for option in (1, 2, 2):
        voted = await http.put(f"/polls/{id}/vote", json={"option": option}, headers=bearer(plaza, "ben"))
    assert voted.json()["options"] == [{"text": "Tea", "votes": 0}, {"text": "Coffee", "votes": 1}]
    assert voted.json()["vote"] == 2
    first, second = (await http.get("/polls")).json()["polls"]
    assert (first["id"], first["votes"], first["vote"], second["votes"]) == (id, 1, None, 0)
    removed = await http.delete(f"/polls/{id}/vote", headers=bearer(plaza, "ben"))
    assert removed.json()["votes"] == 0


async def test_wrong_requests_are_refused(plaza: Plaza, http: httpx.AsyncClient) -> None:
    id = await create(plaza, http)
    assert (await http.post("/polls", json=NEW_POLL)).status_code == 401
    refused = await http.put(f"/polls/{id}/vote", json={"option": 3}, headers=bearer(plaza, "ben"))
    assert (refused.status_code, refused.json()["field"]) == (422, "option")
    assert (await http.get(f"/polls/{'0' * 32}")).status_code == 404


async def test_the_audit_repairs_projections(plaza: Plaza, http: httpx.AsyncClient, redis_client: Any) -> None:
    id = await create(plaza, http)
    await http.put(f"/polls/{id}/vote", json={"option": 1}, headers=bearer(plaza, "ben"))
    assert (await plaza.get(Audits).run()).clean
    await redis_client.hset(POLL(id), "votes", 7)
    await redis_client.zadd(POLLS_POPULAR(), {id: 9, "f" * 32: 1})
    await redis_client.sadd(USER_POLLS("cia"), "f" * 32)
    await redis_client.hset(POLL_VOTES("e" * 32), "ben", 1)
    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.left
    assert await redis_client.zrange(POLLS_POPULAR(), 0, -1, withscores=True) == [(id, 1.0)]
    assert not await redis_client.exists(POLL_VOTES("e" * 32))


async def test_votes_are_exported_renamed_and_deleted(plaza: Plaza, http: httpx.AsyncClient) -> None:
    id = await create(plaza, http)
    await http.put(f"/polls/{id}/vote", json={"option": 2}, headers=bearer(plaza, "ben"))
    data = PollsPersonalData(plaza.core.functions)
    await data.rename("ben", "benno")
    assert await data.export("ben") == {"poll_votes": {}}
    assert await data.export("benno") == {"poll_votes": {id: 2}}
    await data.delete("benno")
    assert (await http.get(f"/polls/{id}")).json()["votes"] == 0
    assert (await plaza.get(Audits).run()).clean


def test_the_tutorial_shows_the_code_of_the_example() -> None:
    blocks = re.findall(r'```\w+ title="(examples/[\w/.]+)"\n(.*?)```', TUTORIAL.read_text(), re.DOTALL)
    assert {Path(name).name for name, _ in blocks} >= {"keys.py", "polls.lua", "service.py", "routes.py", "domain.py"}
    for name, text in blocks:
        assert text.strip() in (ROOT / name).read_text(), f"{name} differs from the tutorial"
