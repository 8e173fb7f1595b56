"""A plain client and Plaza use the documented keys of the shop together, as two services on one Valkey."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from plaza.app import Plaza, running
from plaza.core.settings import Settings
from plaza.keyspace.audit import REPAIR, Audits
from tests.http_servers import client_of
from tests.servers import Server
from tests.shop.conftest import API_KEY, KEY

LAPTOP = "EB9382CA-0376-4558-B271-EA230BDB7EAF"
PHONE = "3e2b1c8e-0d55-4b0a-8a53-0e9a4f1c7d11"
GUEST = "E1F27C8C-527C-42CC-BCD0-1F8A433F7A44"
DOCUMENTED = ("login:", "recent:", "viewed:*", "cart:*", "inv:*", "delay:", "schedule:", "cache:*")
INTERLEAVED_SECONDS = 3.0

pytestmark = pytest.mark.parametrize("place", ["server"], indirect=True)


@pytest.fixture
async def plaza(place: Server, tmp_path: Path) -> AsyncIterator[Plaza]:
    settings = Settings(
        data_dir=tmp_path, valkey_url=place.url, api_key=API_KEY, jwt_secret="x" * 32, rate_limits=False
    )
    async with running(settings) as plaza:
        yield plaza


@pytest.fixture
async def http(plaza: Plaza) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(plaza.app) as client:
        yield client


async def create_items(http: httpx.AsyncClient, count: int) -> list[int]:
    new = {"description": "A tablet.", "price": "19.90", "qty": 1_000_000}
    responses = [await http.post("/shop/items", json={"name": f"GTab {n}", **new}, headers=KEY) for n in range(count)]
    return [response.json()["id"] for response in responses]


async def write_world(client: Any, items: list[int]) -> None:
    """Write what the document describes, as a service that knows nothing else would."""
    first, second, third = map(str, items[:3])
    now = time.time()
    await client.hset("login:", mapping={LAPTOP: "user1", PHONE: "user1"})
    await client.zadd("recent:", {LAPTOP: now - 3, PHONE: now - 2, GUEST: now - 1})
    await client.zadd(f"viewed:{LAPTOP}", {first: now - 3, second: now - 2})
    await client.zadd(f"viewed:{GUEST}", {third: now - 1})
    await client.zadd("viewed:", {third: -23, first: -2, second: -1})
    await client.hset(f"cart:{LAPTOP}", mapping={first: "10", second: "3"})
    await client.hset(f"cart:{GUEST}", mapping={third: "1200"})
    await client.set(f"inv:{first}", '{"qty":629, "name": "GTab 7inch", "description": "..."}')
    await client.zadd("delay:", {first: 10.0, second: 3600})
    await client.zadd("schedule:", {first: now + 10, second: now + 3600})
    await client.set("cache:236712hhl3213yu21_hash", "<html></html>")
    await client.set("cache:another_hash", "<html></html>", ex=7200)


async def read_documented(client: Any) -> dict[str, Any]:
    """Return every documented key with its value and whether it expires."""
    values: dict[str, Any] = {}
    for pattern in DOCUMENTED:
        async for name in client.scan_iter(pattern):
            kind = await client.type(name)
            read = {"hash": client.hgetall, "string": client.get}.get(kind)
            value = await (read(name) if read else client.zrange(name, 0, -1, withscores=True))
            values[name] = (value, await client.ttl(name) >= 0)
    return values


def cookie(token: str) -> dict[str, str]:
    return {"cookie": f"plaza={token}"}


async def get_lines(http: httpx.AsyncClient, token: str) -> dict[int, int]:
    cart = (await http.get("/shop/cart", headers=cookie(token))).json()
    return {line["id"]: line["qty"] for line in cart["items"]}


async def test_plaza_shows_a_world_written_by_the_document_and_repair_keeps_it(
    plaza: Plaza, http: httpx.AsyncClient, redis_client: Any
) -> None:
    items = await create_items(http, 3)
    await write_world(redis_client, items)
    written = await read_documented(redis_client)
    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.groups
    assert await read_documented(redis_client) == written

    for token, user in ((LAPTOP, "user1"), (PHONE, "user1"), (GUEST, None)):
        session = await http.post("/shop/session", headers=cookie(token))
        assert (session.status_code, session.json()["user"]) == (200, user)
    assert await get_lines(http, LAPTOP) == {items[0]: 10, items[1]: 3}
    assert await get_lines(http, PHONE) == {items[0]: 10, items[1]: 3}
    assert await get_lines(http, GUEST) == {items[2]: 1200}
    viewed = (await http.get("/shop/recently-viewed", headers=cookie(LAPTOP))).json()["items"]
    assert [item["id"] for item in viewed] == [items[1], items[0]]
    popular = (await http.get("/shop/items/popular")).json()["items"]
    assert [item["id"] for item in popular] == [items[2], items[0], items[1]]
    rows = (await http.get("/shop/cache", headers=KEY)).json()
    assert [(row["id"], row["delay"]) for row in rows["rows"]] == [(items[0], 10), (items[1], 3600)]

    written = await read_documented(redis_client)
    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.groups
    assert await read_documented(redis_client) == written
    order = await http.post("/shop/checkout", headers=cookie(PHONE))
    assert {line["id"]: line["qty"] for line in order.json()["items"]} == {items[0]: 10, items[1]: 3}


async def test_both_writers_interleave_without_a_loss(plaza: Plaza, http: httpx.AsyncClient, redis_client: Any) -> None:
    items = await create_items(http, 6)
    await write_world(redis_client, items)
    await get_lines(http, LAPTOP)
    await get_lines(http, PHONE)
    last: dict[int, int] = {items[0]: 10, items[1]: 3}
    views = dict.fromkeys(items, 0)
    until = time.monotonic() + INTERLEAVED_SECONDS

    async def other_service(token: str, item: int) -> None:
        n = 0
        while time.monotonic() < until:
            n += 1
            await redis_client.zadd("recent:", {token: time.time()})
            await redis_client.zadd(f"viewed:{token}", {str(item): time.time()})
            await redis_client.zincrby("viewed:", -1, str(item))
            views[item] += 1
            await redis_client.hset(f"cart:{token}", str(item), str(n % 900 + 1))
            last[item] = n % 900 + 1
            await asyncio.sleep(0)

    async def by_plaza(token: str, item: int) -> None:
        n = 0
        while time.monotonic() < until:
            n += 1
            await http.get(f"/shop/items/{item}", headers=cookie(token))
            views[item] += 1
            qty = n % 900 + 1
            await http.put(f"/shop/cart/items/{item}", json={"qty": qty}, headers=cookie(token))
            last[item] = qty

    await asyncio.gather(
        other_service(LAPTOP, items[2]),
        other_service(PHONE, items[3]),
        by_plaza(LAPTOP, items[4]),
        by_plaza(PHONE, items[5]),
    )
    assert all(views[item] > 20 for item in items[2:])
    for token in (LAPTOP, PHONE, LAPTOP):
        lines = await get_lines(http, token)
    assert lines == last
    assert await get_lines(http, PHONE) == last
    scores = {int(item): -score for item, score in await redis_client.zrange("viewed:", 0, -1, withscores=True)}
    before = {items[2]: 23, items[0]: 2, items[1]: 1}
    assert scores == {item: views[item] + before.get(item, 0) for item in items}
    written = await read_documented(redis_client)
    report = await plaza.get(Audits).run(REPAIR)
    assert report.clean, report.groups
    assert await read_documented(redis_client) == written
