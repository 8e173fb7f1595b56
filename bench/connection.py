"""Compares our connection with redis-py (asyncio, hiredis) and valkey-glide: `python -m bench connection`.

One server, one loop (uvloop), 64 callers. `page` is a list: the ids of a page in one round trip, then their twenty
hashes in a second one.
"""

from __future__ import annotations

from typing import Any

import psutil
import redis.asyncio
import uvloop
from glide import Batch, GlideClient, GlideClientConfiguration, NodeAddress, RangeByIndex

from bench.harness import Cost, Operation, compare, measure, show
from plaza.core.valkey import Valkey, connect
from tests.servers import Server, running_server

PAGE = 20
POSTS = 1000
FIELDS = ("id", "author", "content", "createdAt", "likesCount", "commentsCount", "bookmarksCount", "points")


async def fill(valkey: Valkey) -> None:
    await valkey.call("SET", "key", "value")
    for i in range(POSTS):
        pairs = [part for field in FIELDS for part in (field, f"{field} of {i}")]
        await valkey.batch([["ZADD", "feed", i, i], ["HSET", f"post:{i}", *pairs]])


async def our_page(valkey: Valkey) -> list[Any]:
    ids = await valkey.call("ZREVRANGE", "feed", 0, PAGE - 1)
    return await valkey.batch([("HGETALL", f"post:{i}") for i in ids])


async def redis_page(client: Any) -> list[Any]:
    ids = await client.zrevrange("feed", 0, PAGE - 1)
    async with client.pipeline(transaction=False) as pipe:
        for i in ids:
            pipe.hgetall(f"post:{i}")
        replies: list[Any] = await pipe.execute()
    return replies


async def glide_page(client: GlideClient) -> list[Any]:
    ids = await client.zrange("feed", RangeByIndex(0, PAGE - 1), reverse=True)
    batch = Batch(is_atomic=False)
    for i in ids:
        batch.hgetall(f"post:{i.decode()}")
    return await client.exec(batch, raise_on_error=True) or []


async def server_cpu(server: Server, operation: Operation, count: int) -> str:
    """Return the server's own CPU time, the lower limit for any client."""
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    before = process.cpu_times()
    await measure(operation, count)
    after = process.cpu_times()
    seconds = after.user + after.system - before.user - before.system
    return f"Valkey itself {seconds / count * 1e6:.1f} µs"


async def run(server: Server) -> dict[str, dict[str, Cost]]:
    port = server.port
    ours = await connect(server.url)
    theirs: Any = redis.asyncio.Redis(port=port, decode_responses=True, max_connections=64)
    glide = await GlideClient.create(GlideClientConfiguration([NodeAddress("127.0.0.1", port)], request_timeout=5000))
    await fill(ours)
    pages = [await our_page(ours), await redis_page(theirs)]
    assert pages[0] == pages[1]
    assert len(await glide_page(glide)) == PAGE

    single: dict[str, tuple[Operation, int]] = {
        "plaza": (lambda: ours.call("GET", "key"), 64_000),
        "redis-py": (lambda: theirs.get("key"), 6_400),
        "valkey-glide": (lambda: glide.get("key"), 12_800),
    }
    page: dict[str, tuple[Operation, int]] = {
        "plaza": (lambda: our_page(ours), 6_400),
        "redis-py": (lambda: redis_page(theirs), 1_280),
        "valkey-glide": (lambda: glide_page(glide), 1_280),
    }
    results = {"single": await compare(single), "page": await compare(page)}
    show(f"GET, 64 callers ({await server_cpu(server, *single['plaza'])})", results["single"], "plaza")
    title = f"a page: ZREVRANGE, then 20 HGETALL in one batch, 64 callers ({await server_cpu(server, *page['plaza'])})"
    show(title, results["page"], "plaza")
    await ours.close()
    await theirs.aclose()
    await glide.close()
    return results


def main() -> dict[str, dict[str, Cost]]:
    with running_server() as server:
        return uvloop.run(run(server))


if __name__ == "__main__":
    main()
