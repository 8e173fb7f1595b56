"""Upstash's own clients, unchanged, as strangers who use the proxy: for Python, and for TypeScript under Node."""

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
from tests.keyspace.proxy.conftest import KEY, POST, Door, token

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
    with upstash_redis.Redis(url=str(http.base_url), token=token(), rest_retries=0) as waiting:
        assert await asyncio.to_thread(waiting.hget, "user:me", "bio") == "I am ana"


@pytest.mark.usefixtures("community")
async def test_the_python_clients_pipelines_transactions_and_errors(http: httpx.AsyncClient, redis_client: Any) -> None:
    async with _redis(http, token()) as redis, _redis(http, KEY) as server, _redis(http, "nobody") as nobody:
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
        whole = redis.multi()
        whole.hset("user:me", "theme", "red")
        whole.hset("user:me", "role", "admin")
        with pytest.raises(UpstashError, match=r"EXECABORT .* ERR not allowed: the field 'role'"):
            await whole.exec()
        assert await redis.hget("user:me", "theme") == "blue", "none of it was done"
        with pytest.raises(UpstashError, match="ERR The token is not valid"):
            await nobody.ping()
        assert await server.hset("user:bob", "bio", "by a server") == 0
        assert await redis_client.hget(social.USER("bob"), "bio") == "by a server"


@pytest.mark.usefixtures("community")
async def test_a_transaction_across_slots_is_refused_on_a_cluster_and_done_on_one_server(
    ana: Door, valkey: Valkey
) -> None:
    answer = await ana.post("/multi-exec", [["HSET", "user:me", "n", 1], ["ZCARD", "explore:feed"]])
    if valkey.layout is Layout.BRACES:
        assert (answer.status_code, answer.json()["error"].split()[0]) == (400, "CROSSSLOT")
        assert await ana.ask("HGET", "user:me", "n") is None
    else:
        assert answer.json() == [{"result": 1}, {"result": 1}]


@pytest.mark.usefixtures("community")
async def test_the_typescript_client_does_everything(http: httpx.AsyncClient) -> None:
    assert shutil.which("node"), "the tests need Node: make test sets it up"
    assert (FOLDER / "node_modules").is_dir(), "the tests need the client: make test installs it"
    node = await asyncio.create_subprocess_exec(
        "node", str(FOLDER / "client.mjs"), str(http.base_url), token(), POST, stdout=-1, stderr=-1
    )
    out, errors = await asyncio.wait_for(node.communicate(), NODE_SECONDS)
    assert node.returncode == 0, errors.decode()
    told = json.loads(out)
    assert told["ping"] == "PONG"
    assert (told["written"], told["object"], told["counted"]) == (5, 1, 42)
    mine = told["mine"]
    assert mine["email"] == "ana@private.example"
    assert "password_hash" not in mine
    assert (mine["on"], mine["n"], mine["big"], mine["wide"], mine["object"]) == (
        True, 42, "9007199254740993", "Zoë 🎪 日本", {"a": [1, 2]},
    )  # fmt: skip
    assert told["some"] == {"theme": "dark", "wide": "Zoë 🎪 日本", "none": None}
    assert (told["text"], told["others"]) == ("9007199254740993", "Bob")
    assert told["feed"] == [POST, 1_700_000_000_123]
    assert told["byScore"] == [POST]
    assert told["likes"] == told["scanned"] == ["cia", "dee"]
    assert told["comments"] == [POST.replace("1", "3")]
    assert (told["exists"], told["at_once"]) == (1, ["dark", 2, 1])
    assert told["pipeline"] == ["dark", 0, "light"]
    assert told["transaction"] == [0, 50, "blue"]
    assert told["kept"][0] == {"result": "light"}
    assert told["kept"][1]["error"].startswith("ERR not allowed")
    for name in ("refused_one", "refused_piped", "refused_whole", "wrong_type", "not_an_integer", "stranger"):
        assert told[name]["error"] == "UpstashError", told[name]
    assert "ERR not allowed" in told["refused_one"]["message"]
    assert "ERR not allowed: the field 'role'" in told["refused_piped"]["message"]
    assert "forbidden command 'sadd'" in told["refused_whole"]["message"]
    assert "WRONGTYPE" in told["wrong_type"]["message"]
    assert "not an integer" in told["not_an_integer"]["message"]
    assert (told["after"], told["removed"]) == ("blue", 6)
