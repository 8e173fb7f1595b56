"""A user with data in every domain of a running server, and a search for keys and rows that contain a username."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import redis

from tests.processes import ServerProcess, serving
from tests.timeouts import TIME_LIMIT_SECONDS

API_KEY = "k" * 32
OPERATOR = {"x-api-key": API_KEY}
ACCOUNT = {"username": "activeuser", "password": "correct horse"}

# Keys that keep the old name: its revocation, mentions of it, events until they are trimmed, and keys that expire
# within hours. FTS5 removes the words of deleted documents from its own tables when it merges them.
ALLOWED_PREFIXES = (
    "tokens:cutoffs",
    "users:renamed",
    "events:",
    "limit:",
    "idempotency:",
    "challenges:turn:",
    "snapshot:",
    "search_words",
)


def traces(data_dir: Path, name: str) -> list[str]:
    """Every key and row that contains a username, read with a plain Redis client."""
    socket = str(data_dir / "valkey.sock")
    store = redis.Redis(unix_socket_path=socket, decode_responses=True, encoding_errors="replace")
    readers: dict[str, Any] = {
        "hash": store.hgetall,
        "set": store.smembers,
        "zset": lambda key: store.zrange(key, 0, -1),
        "list": lambda key: store.lrange(key, 0, -1),
        "string": store.get,
        "stream": store.xrange,
        "none": lambda key: None,  # expired since the scan
    }
    keys = {str(key): readers[str(store.type(key))](key) for key in store.scan_iter(count=1000)}
    found = [f"{key} {value}" for key, value in keys.items() if name in f"{key} {value}"]
    with sqlite3.connect(f"file:{data_dir / 'plaza.sqlite'}?mode=ro", uri=True) as tables:
        names = [row[0] for row in tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [(table, row) for table in names for row in tables.execute(f'SELECT * FROM "{table}"')]
    found += [f"{table} {row}" for table, row in rows if name in str(row)]
    return [trace for trace in found if not trace.startswith(ALLOWED_PREFIXES)]


def remaining_traces(data_dir: Path, name: str) -> list[str]:
    """What is left of a username when the worker has handled the events. Empty as soon as nothing is left."""
    deadline = monotonic() + TIME_LIMIT_SECONDS
    while (found := traces(data_dir, name)) and monotonic() < deadline:
        sleep(0.1)
    return found


def write_in_every_domain(client: httpx.Client) -> None:
    """Write data of the signed-in user in each of the five domains."""

    def ok_json(response: httpx.Response) -> Any:
        assert response.status_code < 300, response.text
        return response.json()

    post = ok_json(client.post("/posts", json={"content": "Hello #plaza"}))["id"]
    ok_json(client.post(f"/posts/{post}/like"))
    ok_json(client.post(f"/posts/{post}/bookmark"))
    ok_json(client.post(f"/posts/{post}/comments", json={"content": "Indeed"}))
    ok_json(client.post("/articles", json={"title": "A", "link": "https://example.org/a"}))
    challenge = ok_json(
        client.post("/challenges", json={"title": "Run", "category": 1, "is_public": True, "duration": 9})
    )
    ok_json(client.post(f"/challenges/{challenge['id']}/join"))
    ok_json(client.post(f"/challenges/{challenge['id']}/track"))
    ok_json(client.post(f"/challenges/{challenge['id']}/posts", json={"text": "Ran"}))
    ok_json(client.post("/analytics/events/keynote/heartbeat", json={"location": "hall", "session_id": "one"}))
    ok_json(client.post("/analytics/events/keynote/leave", json={"location": "hall", "session_id": "one"}))
    cup = {"name": "Cup", "description": "", "price": "3.50", "qty": 9}
    item = ok_json(httpx.post(f"{client.base_url}/shop/items", json=cup, headers=OPERATOR, timeout=TIME_LIMIT_SECONDS))[
        "id"
    ]
    ok_json(client.post("/shop/login", json=ACCOUNT))
    ok_json(client.put(f"/shop/cart/items/{item}", json={"qty": 2}))
    ok_json(client.post("/shop/checkout"))
    ok_json(client.put(f"/shop/cart/items/{item}", json={"qty": 1}))


@contextmanager
def active_user(data_dir: Path) -> Iterator[tuple[ServerProcess, httpx.Client]]:
    """A server, and a signed-in user `activeuser` with data in every domain."""
    with (
        serving(data_dir, PLAZA_API_KEY=API_KEY) as server,
        httpx.Client(base_url=server.url, timeout=TIME_LIMIT_SECONDS) as client,
    ):
        token = client.post("/auth/register", json=ACCOUNT).json()["access_token"]
        client.headers["authorization"] = f"Bearer {token}"
        write_in_every_domain(client)
        yield server, client
