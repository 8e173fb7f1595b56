"""Someone who has been in all five domains of a running server, and what names them afterwards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.processes import ServerProcess, serving
from tests.timeouts import TIME_LIMIT_SECONDS

API_KEY = "k" * 32
OPERATOR = {"x-api-key": API_KEY}
ACCOUNT = {"username": "wanderer", "password": "correct horse"}

# Keys that keep the old name: its revocation, and keys that expire within hours.
KNOWS_THE_OLD_NAME = ("tokens:cutoffs", "limit:", "idempotency:", "challenges:turn:", "snapshot:")


def traces(data_dir: Path, name: str) -> list[str]:
    """Every key and row that contains a username, read with a plain Redis client."""
    store = redis.Redis(unix_socket_path=str(data_dir / "valkey.sock"), decode_responses=True)
    readers: dict[str, Any] = {
        "hash": store.hgetall,
        "set": store.smembers,
        "zset": lambda key: store.zrange(key, 0, -1),
        "list": lambda key: store.lrange(key, 0, -1),
        "string": store.get,
        "stream": store.xrange,
        "none": lambda key: None,  # it has run out meanwhile
    }
    keys = {str(key): readers[str(store.type(key))](key) for key in store.scan_iter(count=1000)}
    found = [f"{key} {value}" for key, value in keys.items() if name in f"{key} {value}"]
    with sqlite3.connect(f"file:{data_dir / 'plaza.sqlite'}?mode=ro", uri=True) as tables:
        names = [row[0] for row in tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [(table, row) for table in names for row in tables.execute(f'SELECT * FROM "{table}"')]
    found += [f"{table} {row}" for table, row in rows if name in str(row)]
    return [trace for trace in found if not trace.startswith(KNOWS_THE_OLD_NAME)]


def live_everywhere(client: httpx.Client) -> None:
    """Leave a trace in each of the five domains."""

    def did(answer: httpx.Response) -> Any:
        assert answer.status_code < 300, answer.text
        return answer.json()

    post = did(client.post("/posts", json={"content": "Hello #plaza"}))["id"]
    did(client.post(f"/posts/{post}/like"))
    did(client.post(f"/posts/{post}/bookmark"))
    did(client.post(f"/posts/{post}/comments", json={"content": "Indeed"}))
    did(client.post("/articles", json={"title": "A", "link": "https://example.org/a"}))
    challenge = did(client.post("/challenges", json={"title": "Run", "category": 1, "is_public": True, "duration": 9}))
    did(client.post(f"/challenges/{challenge['id']}/join"))
    did(client.post(f"/challenges/{challenge['id']}/track"))
    did(client.post(f"/challenges/{challenge['id']}/posts", json={"text": "Ran"}))
    did(client.post("/analytics/events/keynote/heartbeat", json={"location": "hall", "session_id": "one"}))
    did(client.post("/analytics/events/keynote/leave", json={"location": "hall", "session_id": "one"}))
    cup = {"name": "Cup", "description": "", "price": "3.50", "qty": 9}
    item = did(httpx.post(f"{client.base_url}/shop/items", json=cup, headers=OPERATOR, timeout=TIME_LIMIT_SECONDS))[
        "id"
    ]
    did(client.post("/shop/login", json=ACCOUNT))
    did(client.put(f"/shop/cart/items/{item}", json={"qty": 2}))
    did(client.post("/shop/checkout"))
    did(client.put(f"/shop/cart/items/{item}", json={"qty": 1}))


@contextmanager
def wanderer(data_dir: Path) -> Iterator[tuple[ServerProcess, httpx.Client]]:
    """A server, and a signed-in user `wanderer` with data in every domain."""
    with (
        serving(data_dir, PLAZA_API_KEY=API_KEY) as server,
        httpx.Client(base_url=server.url, timeout=TIME_LIMIT_SECONDS) as client,
    ):
        token = client.post("/auth/register", json=ACCOUNT).json()["access_token"]
        client.headers["authorization"] = f"Bearer {token}"
        live_everywhere(client)
        yield server, client
