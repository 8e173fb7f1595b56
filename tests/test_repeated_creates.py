"""A create that is repeated with its Idempotency-Key creates one thing, also if Valkey lost the key in a failover."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from plaza import app
from plaza.app import Plaza, running
from plaza.core.clock import Clock, ManualClock
from plaza.core.idempotency import DAY_MS, STORED_MS
from plaza.core.keys import IDEMPOTENCY
from plaza.core.settings import Settings
from tests.http_servers import client_of
from tests.servers import Server

ADMIN = {"X-API-Key": "an-api-key-for-tests"}


@dataclass
class RepeatingClient:
    """Sends creates twice. In between Valkey loses what it knew of the first one."""

    plaza: Plaza
    http: httpx.AsyncClient
    server: Server
    ana: dict[str, str]

    async def create(self, path: str, key: str, body: Any) -> Any:
        """Create as ana, items and notes as an admin, and orders as a guest."""
        credentials = {"/shop/items": ADMIN, "/admin/users/ana/notes": ADMIN, "/shop/checkout": {}}.get(path, self.ana)
        response = await self.http.post(path, json=body, headers={"Idempotency-Key": key, **credentials})
        assert response.status_code == 201, response.text
        return response.json()

    async def create_twice(self, path: str, body: Any) -> Any:
        """Create with a lost key in between; returns what both responses have."""
        key = uuid.uuid4().hex
        first = await self.create(path, key, body)
        self.lose_keys()
        assert await self.create(path, key, body) == first
        return first

    def lose_keys(self) -> None:
        with self.server.redis_client() as client:
            lost = list(client.scan_iter(match=IDEMPOTENCY("*"), count=1000))
            assert lost
            client.delete(*lost)

    @contextmanager
    def losing_all_writes(self) -> Iterator[None]:
        """Afterwards all keys are as before."""
        with self.server.redis_client() as client:
            before = {name: client.dump(name) for name in client.scan_iter(count=1000)}
            yield
            client.flushall()
            for name, value in before.items():
                client.restore(name, 0, value)

    async def count(self, table: str) -> int:
        async with self.plaza.core.sql.read() as tx:
            return int((await tx.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())

    async def age_rows(self, table: str) -> None:
        """Make rows as old as a stored response gets."""
        async with self.plaza.core.sql.begin() as tx:
            await tx.execute(text(f"UPDATE {table} SET created_ms = created_ms - {STORED_MS}"))


@pytest.fixture
async def client(
    sql_settings: Settings, server: Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RepeatingClient]:
    # At noon, because a request whose key is lost is repeated as a new one after midnight.
    noon = Clock().now_ms() // DAY_MS * DAY_MS + DAY_MS // 2
    monkeypatch.setattr(app, "Clock", lambda: ManualClock(noon))
    settings = replace(sql_settings, valkey_url=server.url, rate_limits=False, api_key=ADMIN["X-API-Key"])
    async with running(settings) as plaza, client_of(plaza.app) as http:
        account = {"username": "ana", "password": "a long pass phrase of ana"}
        registered = await http.post("/auth/register", json=account)
        ana = {"Authorization": f"Bearer {registered.json()['access_token']}"}
        yield RepeatingClient(plaza, http, server, ana)


async def test_a_repeated_create_creates_one_row_although_valkey_lost_its_key(client: RepeatingClient) -> None:
    new = {"title": "Run", "category": 1, "is_public": True, "duration": 21}
    challenge = await client.create_twice("/challenges", new)
    await client.http.post(f"/challenges/{challenge['id']}/join", headers=client.ana)
    post = await client.create_twice(f"/challenges/{challenge['id']}/posts", {"text": "Day one"})
    await client.create_twice(f"/challenges/posts/{post['id']}/comments", {"content": "Well done"})
    await client.create_twice("/admin/users/ana/notes", {"text": "Runs."})
    await client.create_twice("/reports", {"subject": "user", "id": "ana", "reason": "Sends advertising."})
    item = {"name": "Tea", "description": "Green", "price": "2.50", "qty": 5}
    await client.create_twice("/shop/items", item)
    tables = ("challenge", "post", "challenge_comment", "desk_notes", "reports", "shop_items")
    assert {table: await client.count(table) for table in tables} == dict.fromkeys(tables, 1)
    # Things in Valkey too: their ids follow from the request and the day.
    post = await client.create_twice("/posts", {"content": "Hello"})
    await client.create_twice(f"/posts/{post['id']}/comments", {"content": "Hi"})
    await client.create_twice("/articles", {"title": "News", "link": "https://example.org/news"})
    # After a day the same key is a new request.
    first = await client.create("/challenges", "a-key", new)
    client.lose_keys()
    await client.age_rows("challenge")
    assert (await client.create("/challenges", "a-key", new))["id"] != first["id"]


async def test_a_repeated_create_of_a_challenge_that_was_deleted_says_so(client: RepeatingClient) -> None:
    new = {"title": "Run", "category": 1, "is_public": True, "duration": 21}
    challenge = await client.create("/challenges", "a-key", new)
    await client.http.delete(f"/challenges/{challenge['id']}", headers=client.ana)
    client.lose_keys()
    again = await client.http.post("/challenges", json=new, headers={"Idempotency-Key": "a-key", **client.ana})
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_a_repeated_checkout_orders_once_although_valkey_lost_the_first(client: RepeatingClient) -> None:
    new = {"name": "Tea", "description": "Green", "price": "2.50", "qty": 5}
    item = (await client.create("/shop/items", "tea", new))["id"]
    await client.http.post("/shop/session")
    await client.http.put(f"/shop/cart/items/{item}", json={"qty": 2})
    with client.losing_all_writes():
        order = await client.create("/shop/checkout", "my-order", {})
    again = await client.create("/shop/checkout", "my-order", {})
    assert again == order
    assert await client.count("shop_orders") == 1
    assert (await client.http.get(f"/shop/items/{item}")).json()["qty"] == 3
    assert (await client.http.get("/shop/cart")).json()["items"] == []
    # The key was lost, but not the cart: what is in it now was not ordered.
    await client.http.put(f"/shop/cart/items/{item}", json={"qty": 1})
    client.lose_keys()
    assert await client.create("/shop/checkout", "my-order", {}) == order
    assert [line["qty"] for line in (await client.http.get("/shop/cart")).json()["items"]] == [1]
