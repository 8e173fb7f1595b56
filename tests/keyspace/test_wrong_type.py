"""A key of the wrong type is reported in the response, in the log and in the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from plaza.app import Plaza
from plaza.core import wrong_type
from plaza.core.metrics import REGISTRY
from plaza.core.timers import Timer
from plaza.sessions.keys import SESSION_STATE
from plaza.shop.keys import CART
from plaza.social.keys import EXPLORE_FEED, POST, POST_LIKES, USERS_REGULAR
from plaza.worker import Worker
from tests.http_servers import all_of_plaza, client_of, is_problem
from tests.servers import Cluster, Server
from tests.waiting import eventually

on_one_server = pytest.mark.parametrize("place", ["server"], indirect=True)


@pytest.fixture
async def plaza(place: Server | Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plaza]:
    monkeypatch.setattr(wrong_type, "_LOGGED", {})
    async with all_of_plaza(place, tmp_path) as plaza:
        yield plaza


@pytest.fixture
async def ana(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    token = plaza.core.auth.issue("ana", "user")
    async with client_of(plaza.app, authorization=f"Bearer {token}") as client:
        account = {"username": "ana", "password": "correct horse"}
        assert (await client.post("/auth/register", json=account)).status_code == 201
        yield client


def wrong_type_count(family: str) -> float:
    return REGISTRY.get_sample_value("plaza_damaged_keys_total", {"family": family}) or 0.0


def logged_keys(logs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in logs if line["event"] == "key_wrong_type"]


async def overwrite(redis_client: Any, name: str) -> None:
    await redis_client.delete(name)
    await redis_client.set(name, "another type")


async def test_a_write_to_a_wrong_type_names_the_key_which_is_logged_once_and_counted(
    ana: httpx.AsyncClient, redis_client: Any
) -> None:
    id = (await ana.post("/posts", json={"content": "hello #tea"})).json()["id"]
    await overwrite(redis_client, POST_LIKES(id))
    before = wrong_type_count("post:<post>:likes")
    with capture_logs() as logs:
        for _ in range(2):
            problem = is_problem(await ana.post(f"/posts/{id}/like"), 409, "damaged_key")
    assert (problem["family"], problem["key"]) == ("post:<post>:likes", POST_LIKES(id))
    assert "`plaza audit`" in problem["detail"]
    assert [(line["key"], line["should_be"], line["found"]) for line in logged_keys(logs)] == [
        (POST_LIKES(id), "set", "string")
    ]
    assert wrong_type_count("post:<post>:likes") == before + 2


async def test_a_key_that_the_request_does_not_name_is_found_too(ana: httpx.AsyncClient, redis_client: Any) -> None:
    """On one server a Lua function writes `explore:feed` by itself. A read takes it as empty."""
    await overwrite(redis_client, EXPLORE_FEED())
    assert (await ana.get("/feed/explore")).json()["posts"] == []
    assert (await ana.get("/app")).status_code == 200
    if not is_cluster(redis_client):
        problem = is_problem(await ana.post("/posts", json={"content": "hello"}), 409, "damaged_key")
        assert problem["family"] == "explore:feed"


def is_cluster(redis_client: Any) -> bool:
    return type(redis_client).__name__ == "RedisCluster"


@on_one_server
async def test_session_tokens_are_not_logged(ana: httpx.AsyncClient, redis_client: Any) -> None:
    token = (await ana.post("/shop/session")).cookies["plaza"]
    await overwrite(redis_client, CART(token))
    with capture_logs() as logs:
        problem = is_problem(await ana.post("/shop/checkout"), 409, "damaged_key")
    assert (problem["family"], problem["key"]) == ("cart:<token>", "cart:<token>")
    assert [line["key"] for line in logged_keys(logs)] == ["cart:<token>"]
    assert token not in str(logs) + str(problem)
    assert await redis_client.exists(SESSION_STATE(token))


async def test_one_damaged_post_does_not_remove_others_from_a_list(ana: httpx.AsyncClient, redis_client: Any) -> None:
    ids = [(await ana.post("/posts", json={"content": f"post {i}"})).json()["id"] for i in range(3)]
    await overwrite(redis_client, POST(ids[1]))
    for path in ("/feed/explore", "/users/ana/posts"):
        listed = (await ana.get(path)).json()["posts"]
        assert [item.get("post", item)["id"] for item in listed] == [ids[2], ids[0]], path
    assert (await ana.get("/app")).status_code == 200
    is_problem(await ana.get(f"/posts/{ids[1]}"), 404, "not_found")


async def test_a_read_takes_a_wrong_type_as_absent_logs_and_counts_it(
    ana: httpx.AsyncClient, redis_client: Any
) -> None:
    """The newest users are read by plain commands."""
    assert (await ana.get("/search/users/newest")).json()["users"]
    before = wrong_type_count("users:regular")
    await overwrite(redis_client, USERS_REGULAR())
    with capture_logs() as logs:
        assert (await ana.get("/search/users/newest")).json()["users"] == []
    assert [line["key"] for line in logged_keys(logs)] == ["users:regular"]
    assert wrong_type_count("users:regular") > before


@on_one_server
async def test_a_job_names_the_damaged_key_without_a_traceback(plaza: Plaza, redis_client: Any) -> None:
    await overwrite(redis_client, EXPLORE_FEED())

    async def read(_: object) -> None:
        await plaza.core.valkey.call("ZCARD", EXPLORE_FEED())

    worker = Worker(
        plaza.core.functions, [Timer("test.read", 3600, read)], explain=plaza.get(wrong_type.WrongTypeReporter).explain
    )
    with capture_logs() as logs:
        running = asyncio.create_task(worker.run())
        failed = await eventually(lambda: [line for line in logs if line["event"] == "job_failed"])
        running.cancel()
        await asyncio.wait([running])
    assert "explore:feed" in failed[0]["error"]
    assert failed[0]["exc_info"] is None
    assert [line["key"] for line in logged_keys(logs)] == ["explore:feed"]


@on_one_server
async def test_a_removed_permission_is_a_503_response_and_one_log_line(
    ana: httpx.AsyncClient, redis_client: Any
) -> None:
    await redis_client.execute_command("ACL", "SETUSER", "default", "-fcall")
    try:
        with capture_logs() as logs:
            for _ in range(2):
                refused = await ana.post("/posts", json={"content": "hello"})
                is_problem(refused, 503, "denied")
                assert refused.headers["retry-after"]
    finally:
        await redis_client.execute_command("ACL", "SETUSER", "default", "+@all")
    assert ["NOPERM" in line["message"] for line in logs if line["event"] == "valkey_permission_denied"] == [True]
    assert (await ana.post("/posts", json={"content": "hello"})).status_code == 201
