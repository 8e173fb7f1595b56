"""Odd values that another service writes to documented keys break no route, job or repair."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis.asyncio

from plaza.app import DOMAINS, Plaza, route_groups
from plaza.core.http.routes import Route
from plaza.core.keys import JOB
from plaza.core.keyspace import Key
from plaza.keyspace.audit import REPAIR, Audits, recheck, throttle
from plaza.sessions.sign_in import SignIn
from tests.http_servers import all_of_plaza, serving
from tests.keyspace.audit.sample_community import SampleCommunity, load
from tests.servers import Server
from tests.timeouts import TIME_LIMIT_SECONDS
from tests.waiting import eventually

TEXTS = [
    "", "abc", "nan", "inf", "-inf", "-1", "0", "1.5", "1700000000000.25", "1e400", "99999999999999999999999", "true",
    "null", "[]", "{", "\x00", "é", "🦄", "user:", ":", "#", "a b", "../x", "<b>", "9" * 400,
]  # fmt: skip
BYTES = [b"\xff\xfe", b"\x80abc"]
SCORES = [float("inf"), float("-inf"), -1.0, 0.0, 0.5, 1.5e9 + 0.25, 1.7e12 + 0.5, 1e300, -1e300, 2.0**63]
# Each of these has found an error once. Add the seed of any new one.
SEEDS = (0, 3, 13, 28)

# Streams without an end, and files.
EVENT_STREAM = "text/event-stream"
SKIPPED = re.compile(r"/stream|/events/stream|/docs/|/assets/|/static/")


@dataclass
class RunningPlaza:
    plaza: Plaza
    community: SampleCommunity
    http: httpx.AsyncClient
    redis: Any


@pytest.fixture
async def running(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningPlaza]:
    monkeypatch.setattr(recheck, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recheck, "SHORT_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(recheck, "REPAIR_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(throttle, "TRAFFIC_PER_SECOND", 1_000_000)
    monkeypatch.setattr(throttle, "FIRST_MEASURE_SECONDS", 0.0)
    client = redis.asyncio.Redis(port=server.port)
    async with (
        all_of_plaza(server, tmp_path) as plaza,
        serving(plaza.app) as url,
        httpx.AsyncClient(base_url=url, timeout=TIME_LIMIT_SECONDS) as http,
    ):
        yield RunningPlaza(plaza, await load(plaza), http, client)
    await client.aclose()


def documented_key(name: str) -> Key | None:
    found = next((match for domain in DOMAINS if (match := domain.catalogue.match(name))), None)
    return found.key if found is not None and found.key.document else None


async def write_odd_values(running: RunningPlaza, dice: random.Random) -> list[str]:
    """Change about a third of the elements of every documented key. Returns the commands, for the report."""
    written: list[str] = []

    async def run(*command: Any) -> None:
        await running.redis.execute_command(*command)
        written.append(" ".join(map(repr, command)))

    for raw in sorted(await running.redis.keys("*")):
        name = raw.decode(errors="replace")
        key = documented_key(name)
        if key is None:
            continue
        odd = [*TEXTS, *BYTES]
        if key.type == "hash":
            for field in await running.redis.hkeys(raw):
                if dice.random() < 0.4:
                    await run("HSET", raw, field, dice.choice(odd))
                elif dice.random() < 0.1:
                    await run("HDEL", raw, field)
            await run("HSET", raw, dice.choice(odd), dice.choice(odd))
        elif key.type == "zset":
            for member in (await running.redis.zrange(raw, 0, -1))[:20]:
                if dice.random() < 0.4:
                    await run("ZADD", raw, dice.choice(SCORES), member)
            await run("ZADD", raw, dice.choice(SCORES), dice.choice(odd))
        elif key.type == "set":
            await run("SADD", raw, dice.choice(odd))
        elif key.type == "list":
            await run("RPUSH", raw, dice.choice(odd))
        elif key.type == "string" and dice.random() < 0.5:
            await run("SET", raw, dice.choice(odd), "KEEPTTL")
    return written


def paths(running: RunningPlaza) -> list[tuple[Route, str]]:
    """Every GET route, with ids of the sample community in its path."""
    community = running.community
    ids: dict[str, list[Any]] = {
        "username": ["ana", "ben"], "group": ["news"], "event": ["E1"], "session": ["S1"], "tag": ["plaza"],
        "item": community.items, "family": ["post"], "side": ["followers"], "name": ["news"],
    }  # fmt: skip
    made = []
    for group in route_groups():
        for route in group.routes:
            if route.method != "GET" or SKIPPED.search(route.template) or route.media_type == EVENT_STREAM:
                continue
            names = re.findall(r"{(\w+)}", route.template)
            choices = {name: ids.get(name) or by_prefix(route.template, community) for name in names}
            for i in range(max([1, *(len(values) for values in choices.values())])):
                path = route.template
                for name, values in choices.items():
                    path = path.replace("{" + name + "}", str(values[i % len(values)]))
                made.append((route, path))
    return made


def by_prefix(template: str, community: SampleCommunity) -> list[Any]:
    for word, values in (
        ("challenges", [*community.challenges, *community.challenge_posts]), ("articles", community.articles),
        ("shop", community.items), ("posts", community.posts), ("users", ["ana"]), ("comments", community.comments),
    ):  # fmt: skip
        if word in template:
            return list(values)
    return ["1"]


async def headers_for(running: RunningPlaza) -> dict[str, dict[str, str]]:
    auth, key = running.plaza.core.auth, running.plaza.core.settings.secret("api_key")
    operator = await running.plaza.get(SignIn).admit(None, "eli")
    return {
        "user": {"authorization": f"Bearer {auth.issue('ana', 'user')}"},
        "server": {"x-api-key": key},
        "page": {"cookie": f"plaza={running.community.token}", "accept": "text/html"},
        "operator": {"cookie": f"plaza={operator.token}", "accept": "text/html"},
    }


def writes(community: SampleCommunity) -> list[tuple[str, str, Any]]:
    """Requests of a user that change what other services wrote too."""
    post, article, item = community.posts[0], community.articles[0], community.items[0]
    return [
        ("POST", f"/posts/{post}/like", None), ("DELETE", f"/posts/{post}/like", None),
        ("POST", f"/posts/{post}/bookmark", None), ("POST", f"/posts/{post}/comments", {"content": "Indeed"}),
        ("PATCH", f"/posts/{post}", {"content": "Good evening #plaza"}), ("POST", "/users/cleo/follow", None),
        ("DELETE", "/users/cleo/follow", None), ("PATCH", "/users/ana", {"display_name": "Ana"}),
        ("POST", "/posts", {"content": "Hello #plaza"}), ("DELETE", f"/posts/{community.posts[1]}", None),
        ("POST", f"/articles/{article}/vote", {"direction": "up"}),
        ("POST", "/articles", {"title": "New", "link": "https://example.com/new", "groups": ["news"]}),
        ("PUT", f"/shop/cart/items/{item}", {"qty": 2}), ("POST", "/shop/checkout", None),
        ("POST", "/analytics/events/E1/heartbeat", {"location": "web", "session_id": "S1"}),
        ("POST", "/analytics/events/E1/leave", {"location": "web", "session_id": "S1"}),
    ]  # fmt: skip


async def failures(running: RunningPlaza) -> list[str]:
    """Read every route as every kind of caller that may use it, and change something. Returns what failed."""
    callers = await headers_for(running)
    requests = [
        ("GET", path, kind, None)
        for route, path in paths(running)
        for kind in (["page", "operator"] if route.template.startswith("/app") else ["user", "server"])
    ]
    for method, path, body in writes(running.community):
        kind = "page" if path.startswith("/shop") else "user"
        requests.append((method, path, kind, body))
    found = []
    for method, path, kind, body in requests:
        try:
            answer = await running.http.request(method, path, headers=callers[kind], json=body)
        except httpx.HTTPError as error:  # a response that ends in the middle
            found.append(f"{method} {path} as {kind}: {error!r}")
            continue
        if answer.status_code >= 500:
            found.append(f"{method} {path} as {kind}: {answer.status_code} {answer.text[:200]}")
    return found


async def failed_jobs(running: RunningPlaza) -> list[str]:
    """Let a worker run every job once. Returns the errors."""
    worker = asyncio.create_task(running.plaza.worker.run())
    names = running.plaza.worker.timers

    async def states() -> list[list[bytes]] | None:
        found = [await running.redis.hmget(JOB(name), "state", "error") for name in names]
        return found if all(state in (b"done", b"failed") for state, _ in found) else None

    try:
        ended = await eventually(states)
    finally:
        worker.cancel()
        await asyncio.wait([worker])
    return [f"{name}: {error}" for name, (state, error) in zip(names, ended, strict=True) if state == b"failed"]


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_request_job_or_repair_fails(running: RunningPlaza, seed: int) -> None:
    written = await write_odd_values(running, random.Random(seed))
    assert len(written) > 100
    assert await failures(running) == []
    assert await failed_jobs(running) == []
    await running.plaza.get(Audits).run(REPAIR)
    assert await failures(running) == []
