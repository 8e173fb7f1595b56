"""Two API processes share one build of a group's ranking."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import redis

from plaza.articles.group_rankings import SINGLE_STEP_SIZE, STEP
from tests.processes import serving
from tests.timeouts import TIME_LIMIT_SECONDS
from tests.waiting import eventually

READERS = 100
MEMBERS = SINGLE_STEP_SIZE + 35 * STEP
STEPS = 30  # of a build, at least: a scan can return more members than it is asked for


def zmscore_calls(valkey: Any) -> int:
    """How many batches of scores were read: by builds, and now and then one by the worker."""
    return int(valkey.info("commandstats").get("cmdstat_zmscore", {"calls": 0})["calls"])


def fill(valkey: Any) -> None:
    """Write a group large enough to need several steps."""
    members = {f"article:{i}": float(i) for i in range(1, MEMBERS + 1)}
    with valkey.pipeline() as pipeline:
        for i in range(1, MEMBERS + 1):  # before the group: the worker removes articles that do not exist
            fields = {"title": "T", "link": "https://example.com", "author": "user:ana", "time": i, "votes": 0}
            pipeline.hset(f"article:{i}", mapping=fields)
        pipeline.zadd("time:", members)
        pipeline.zadd("score:", members)
        pipeline.sadd("group:news", *members)
        pipeline.execute()


async def read(url: str, order: str, readers: int) -> list[list[int]]:
    limits = httpx.Limits(max_connections=readers)
    async with httpx.AsyncClient(base_url=url, timeout=TIME_LIMIT_SECONDS, limits=limits) as client:
        path = f"/groups/news/articles?order={order}&limit=3"
        answers = await asyncio.gather(*(client.get(path) for _ in range(readers)))
    return [[article["id"] for article in answer.json()["articles"]] for answer in answers]


def test_readers_of_an_expired_ranking_in_two_processes_cause_one_build(tmp_path: Path) -> None:
    with serving(tmp_path / "var", PLAZA_WORKERS="2", PLAZA_RATE_LIMITS="off") as server:
        valkey: Any = redis.Redis(unix_socket_path=str(tmp_path / "var" / "valkey.sock"), decode_responses=True)
        fill(valkey)
        newest = [MEMBERS, MEMBERS - 1, MEMBERS - 2]
        assert asyncio.run(read(server.url, "time", 1)) == [newest]
        asyncio.run(eventually(lambda: valkey.exists("time:news")))
        before = zmscore_calls(valkey)
        assert asyncio.run(read(server.url, "score", READERS)) == [newest] * READERS
        asyncio.run(eventually(lambda: valkey.exists("score:news")))
        assert STEPS <= zmscore_calls(valkey) - before < 2 * STEPS
        valkey.close()
