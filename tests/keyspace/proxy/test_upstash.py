"""The official Upstash clients for Python and TypeScript (on Node) work with the proxy unchanged."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
import upstash_redis
from upstash_redis.asyncio import Redis
from upstash_redis.errors import UpstashError

from plaza.core.keyspace import Layout
from plaza.core.valkey import Valkey
from plaza.social import keys as social
from tests.keyspace.proxy.conftest import KEY, POST, ProxyClient, token

FOLDER = Path(__file__).parents[2] / "upstash"
NODE_SECONDS = 60


def _redis(http: httpx.AsyncClient, bearer: str) -> Redis:
    return Redis(url=str(http.base_url), token=bearer, rest_retries=0)


@pytest.mark.usefixtures("community")
async def test_the_python_client_reads_and_writes(http: httpx.AsyncClient, redis_client: Any) -> None:
    async with _redis(http, token()) as redis:
        assert await redis.ping() == "PONG"
        assert await redis.hset("user:me", values={"theme": "dark", "wide": "Zoë 🎪 日本", "big": 2**63 - 2}) == 3
        assert await redis.hincrby("user:me", "big", 1) == 2**63 - 1
        assert await redis.hmget("user:me", "theme", "wide", "none") == ["dark", "Zoë 🎪 日本", None]
        mine = await redis.hgetall("user:me")
        assert (mine["email"], mine["big"], "password_hash" in mine) == ("ana@private.example", str(2**63 - 1), False)
        assert await redis.zrange("explore:feed", 0, 9, withscores=True) == [(POST, 1_700_000_000_123.0)]
        assert sorted(await redis.smembers(f"post:{POST}:likes")) == ["cia", "dee"]
        assert await redis.smismember(f"post:{POST}:likes", "cia", "eve") == [1, 0]
        assert await redis.hdel("user:me", "theme", "wide") == 2
        assert await redis_client.hget(social.USER("ana"), "big") == str(2**63 - 1)
    with upstash_redis.Redis(url=str(http.base_url), token=token(), rest_retries=0) as blocking:
        assert await asyncio.to_thread(blocking.hget, "user:me", "bio") == "I am ana"


@pytest.mark.usefixtures("community")
async def test_the_python_client_has_pipelines_transactions_and_errors(
    http: httpx.AsyncClient, redis_client: Any
) -> None:
    async with _redis(http, token()) as redis, _redis(http, KEY) as server, _redis(http, "invalid") as unauthenticated:
        piped = redis.pipeline()
        piped.hset("user:me", "theme", "dark")
        piped.hget("user:me", "theme")
        assert await piped.exec() == [1, "dark"]
        transaction = redis.multi()
        transaction.hset("user:me", "theme", "blue")
        transaction.hget("user:me", "theme")
        transaction.zcard("user:me:bookmarked")
        assert await transaction.exec() == [0, "blue", 1]
        with pytest.raises(UpstashError, match="ERR not allowed"):
            await redis.hgetall("user:bob")
        refused = redis.pipeline()
        refused.hset("user:me", "role", "admin")
        with pytest.raises(UpstashError, match="ERR not allowed: the field 'role'"):
            await refused.exec()
        aborted = redis.multi()
        aborted.hset("user:me", "theme", "red")
        aborted.hset("user:me", "role", "admin")
        with pytest.raises(UpstashError, match=r"EXECABORT .* ERR not allowed: the field 'role'"):
            await aborted.exec()
        assert await redis.hget("user:me", "theme") == "blue", "the transaction was aborted"
        with pytest.raises(UpstashError, match="ERR The token is not valid"):
            await unauthenticated.ping()
        assert await server.hset("user:bob", "bio", "by a server") == 0
        assert await redis_client.hget(social.USER("bob"), "bio") == "by a server"


@pytest.mark.usefixtures("community")
async def test_a_transaction_across_slots_is_refused_on_a_cluster(ana: ProxyClient, valkey: Valkey) -> None:
    response = await ana.post("/multi-exec", [["HSET", "user:me", "n", 1], ["ZCARD", "explore:feed"]])
    if valkey.layout is Layout.BRACES:
        assert (response.status_code, response.json()["error"].split()[0]) == (400, "CROSSSLOT")
        assert await ana.run("HGET", "user:me", "n") is None
    else:
        assert response.json() == [{"result": 1}, {"result": 1}]


@pytest.mark.usefixtures("community")
async def test_the_typescript_client_works(http: httpx.AsyncClient) -> None:
    assert shutil.which("node"), "the tests need Node: make test sets it up"
    assert (FOLDER / "node_modules").is_dir(), "the tests need the client: make test installs it"
    node = await asyncio.create_subprocess_exec(
        "node", str(FOLDER / "client.mjs"), str(http.base_url), token(), POST, stdout=-1, stderr=-1
    )
    out, errors = await asyncio.wait_for(node.communicate(), NODE_SECONDS)
    assert node.returncode == 0, errors.decode()
    output = json.loads(out)
    assert output["ping"] == "PONG"
    assert (output["written"], output["object"], output["counted"]) == (5, 1, 42)
    mine = output["mine"]
    assert mine["email"] == "ana@private.example"
    assert "password_hash" not in mine
    assert (mine["on"], mine["n"], mine["big"], mine["wide"], mine["object"]) == (
        True, 42, "9007199254740993", "Zoë 🎪 日本", {"a": [1, 2]},
    )  # fmt: skip
    assert output["some"] == {"theme": "dark", "wide": "Zoë 🎪 日本", "none": None}
    assert (output["text"], output["others"]) == ("9007199254740993", "Bob")
    assert output["feed"] == [POST, 1_700_000_000_123]
    assert output["byScore"] == [POST]
    assert output["likes"] == output["scanned"] == ["cia", "dee"]
    assert output["comments"] == [POST.replace("1", "3")]
    assert (output["exists"], output["at_once"]) == (1, ["dark", 2, 1])
    assert output["pipeline"] == ["dark", 0, "light"]
    assert output["transaction"] == [0, 50, "blue"]
    assert output["kept"][0] == {"result": "light"}
    assert output["kept"][1]["error"].startswith("ERR not allowed")
    for name in ("refused_one", "refused_piped", "refused_whole", "wrong_type", "not_an_integer", "stranger"):
        assert output[name]["error"] == "UpstashError", output[name]
    assert "ERR not allowed" in output["refused_one"]["message"]
    assert "ERR not allowed: the field 'role'" in output["refused_piped"]["message"]
    assert "forbidden command 'sadd'" in output["refused_whole"]["message"]
    assert "WRONGTYPE" in output["wrong_type"]["message"]
    assert "not an integer" in output["not_an_integer"]["message"]
    assert (output["after"], output["removed"]) == ("blue", 6)
