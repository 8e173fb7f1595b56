"""The ACL rules of `plaza keys --acl` allow what Plaza needs and no more, as judged by Valkey."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from plaza.app import catalogues, running
from plaza.challenges.daily_job.runner import DailyJob
from plaza.cli import main
from plaza.core.keyspace import Key, KeyAccess, Layout
from plaza.core.settings import Settings
from plaza.keyspace.acl import REQUEST_KEYS, acl_lines
from tests.http_servers import client_of
from tests.keyspace.sample_keys import families, parts_of
from tests.servers import Cluster, Server, running_server
from tests.waiting import eventually

READ: dict[str, list[Any]] = {
    "string": ["GET"],
    "hash": ["HGETALL"],
    "set": ["SMEMBERS"],
    "zset": ["ZRANGE", 0, -1],
    "list": ["LRANGE", 0, -1],
    "stream": ["TYPE"],
}
SOURCE = Path(__file__).parents[2] / "src" / "plaza"
AMBIGUOUS_USERNAMES = ("me", "bob_liked_posts", "x_clgs_preference", "a.b-c", "u" * 30)


def names(key: Key, layout: Layout) -> set[str]:
    """Names of a family, also for usernames that look like part of another name."""
    return {key.name(layout, *parts_of(key, username=name)) for name in AMBIGUOUS_USERNAMES}


@contextmanager
def roles(node: redis.Redis, layout: Layout) -> Iterator[Any]:
    """Create the roles. Yields a function that asks Valkey whether a role may run a command."""
    for line in acl_lines(catalogues(), layout):
        _, name, *tokens = line.split(" ")
        node.execute_command("ACL", "SETUSER", name, *tokens)
    try:
        yield lambda role, *words: node.execute_command("ACL", "DRYRUN", f"plaza-{role}", *words) == "OK"
    finally:
        node.execute_command("ACL", "DELUSER", "plaza-service", "plaza-worker", "plaza-reader")


@pytest.fixture
def node(place: Server | Cluster) -> Iterator[redis.Redis]:
    server = place.nodes[0] if isinstance(place, Cluster) else place
    with server.redis_client() as client:
        yield client


def test_roles_access_declared_keys_and_the_reader_no_secret(node: redis.Redis, place: Server | Cluster) -> None:
    layout = Layout.BRACES if isinstance(place, Cluster) else Layout.PLAIN
    with roles(node, layout) as may:
        for key in families():
            for name in names(key, layout):
                command, *rest = READ[key.type]
                assert may("reader", command, name, *rest) == (key.read is not KeyAccess.NONE), name
                assert may("service", "HSET", name, "f", "v"), name
                assert may("worker", "DEL", name) == (key not in REQUEST_KEYS), name
                assert may("worker", command, name, *rest), name
                assert not may("reader", "HSET", name, "f", "v")
        for role in ("service", "worker", "reader"):
            for undeclared in ("other", "xuser:bob", "x:1:user:bob", "authx"):
                assert not may(role, "GET", undeclared)
                assert not may(role, "SET", undeclared, 1)


def test_roles_have_the_commands_they_need_and_no_dangerous_ones(node: redis.Redis) -> None:
    with roles(node, Layout.PLAIN) as may:
        dangerous = [("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("SHUTDOWN",), ("DEBUG", "SLEEP", 1)]
        dangerous += [("ACL", "LIST"), ("REPLICAOF", "a", 1), ("MONITOR",), ("CLIENT", "KILL", "ID", 1), ("RANDOMKEY",)]
        dangerous += [("EVAL", "return 1", 0), ("PUBLISH", "a", "b"), ("FUNCTION", "FLUSH"), ("MODULE", "LIST")]
        for role in ("service", "worker", "reader"):
            assert not any(may(role, *words) for words in dangerous), role
            assert may(role, "PING")
        for words in (("SCAN", 0), ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "events:posts", ">")):
            assert may("service", *words)
            assert may("worker", *words)
            assert not may("reader", *words)
        assert may("service", "FCALL", "social_like_x", 1, "post:x")
        assert not may("reader", "FCALL_RO", "social_like_x", 1, "post:x")
        assert not may("reader", "SORT_RO", "user:bob:posts", "GET", "auth:*")
        assert not may("reader", "DUMP", "user:bob")


def test_every_command_in_the_source_is_allowed(node: redis.Redis) -> None:
    """Also those of jobs that run rarely or depend on a setting. Backups are made and restored with more rights."""
    known: dict[str, Any] = node.command()
    modules = [path for path in SOURCE.rglob("*.py") if path.parent.name != "backup"]
    named = {name for path in modules for name in re.findall(r'call\(\s*"([A-Z]+)"', path.read_text())}
    named |= {name for path in SOURCE.rglob("*.lua") for name in re.findall(r"p?call\('([A-Z]+)'", path.read_text())}
    commands = sorted(name for name in named if not known[name.lower()]["subcommands"])
    assert {"BGREWRITEAOF", "ZADD", "HSET"} <= set(commands)
    with roles(node, Layout.PLAIN) as may:
        for name in commands:
            words = [name, *["explore:feed"] * (abs(known[name.lower()]["arity"]) - 1)]
            assert may("service", *words), words
            assert may("worker", *words), words
        for words in (["FUNCTION", "LIST"], ["CLUSTER", "SLOTS"], ["CLIENT", "TRACKING", "ON"]):
            assert may("service", *words)


async def test_plaza_runs_as_service_and_worker_from_an_acl_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valkey's ACL log stays empty."""
    file = tmp_path / "users.acl"
    lines = [line.replace(" reset off ", " reset on >secret ") for line in acl_lines(catalogues(), Layout.PLAIN)]
    file.write_text("\n".join(["user default on nopass ~* &* +@all", *lines]) + "\n")
    with running_server("--aclfile", str(file)) as server, server.redis_client() as redis_client:
        settings = Settings(data_dir=tmp_path, valkey_url=f"valkey://plaza-service:secret@127.0.0.1:{server.port}")
        as_worker = replace(settings, valkey_url=settings.valkey_url.replace("service", "worker"))
        monkeypatch.setenv("PLAZA_VALKEY_URL", as_worker.valkey_url)
        monkeypatch.setenv("PLAZA_DATA_DIR", str(tmp_path))
        async with running(settings) as plaza, running(as_worker) as other, client_of(plaza.app) as http:
            work = [asyncio.create_task(each.worker.run()) for each in (plaza, other)]
            await _use_every_domain(http)
            await eventually(lambda: len(list(redis_client.scan_iter("job:*"))) >= 5)
            for each in (plaza, other):
                await each.get(DailyJob).run(rebuild_all=True)
            assert await asyncio.to_thread(main, ["audit"]) in (0, 1)  # it could run; its findings do not matter here
            assert await asyncio.to_thread(main, ["keys", "--memory"]) == 0
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        refusals = redis_client.execute_command("ACL", "LOG")
        assert refusals == []
        reader = redis.Redis(port=server.port, username="plaza-reader", password="secret", decode_responses=True)
        with reader:
            assert reader.hget("user:ana", "username") == "ana"
            with pytest.raises(redis.exceptions.NoPermissionError):
                reader.hgetall("auth:ana")


async def _use_every_domain(http: Any) -> None:
    """Call some routes of every domain."""
    ana = {"username": "ana", "password": "correct horse"}
    token = (await http.post("/auth/register", json=ana)).json()["access_token"]
    headers = {"authorization": f"Bearer {token}"}
    post = (await http.post("/posts", json={"content": "hello #tea"}, headers=headers)).json()["id"]
    article = {"title": "T", "link": "https://a.example", "groups": ["x"]}
    responses = [
        await http.post(f"/posts/{post}/like", headers=headers),
        await http.post(f"/posts/{post}/comments", json={"content": "me too"}, headers=headers),
        await http.get("/feed/following", headers=headers),
        await http.get("/feed/hashtag/tea/ranked", headers=headers),
        await http.post("/articles", json=article, headers=headers),
        await http.get("/groups/x/articles"),
        await http.post("/analytics/events/e/heartbeat", json={"location": "hall"}, headers=headers),
        await http.post("/shop/login", json=ana),
        await http.get("/shop/cart"),
        await http.post("/pipeline", json=[["HGETALL", "user:me"], ["HSET", "user:me", "a", "b"]], headers=headers),
        await http.get("/challenges/recommendations", headers=headers),
    ]
    assert [response.status_code for response in responses if response.status_code >= 300] == []
