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
MEMBERS = SINGLE_STEP_SIZE + STEP


def sscan_calls(valkey: Any) -> int:
    return int(valkey.info("commandstats").get("cmdstat_sscan", {"calls": 0})["calls"])


def fill(valkey: Any) -> None:
    """Write a group large enough to need several steps; only its newest three articles exist."""
    members = {f"article:{i}": float(i) for i in range(1, MEMBERS + 1)}
    valkey.zadd("time:", members)
    valkey.zadd("score:", members)
    valkey.sadd("group:news", *members)
    for i in range(MEMBERS - 2, MEMBERS + 1):
        fields = {"title": "T", "link": "https://example.com", "author": "user:ana", "time": i, "votes": 0}
        valkey.hset(f"article:{i}", mapping=fields)


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
        one_build = sscan_calls(valkey)
        assert one_build > 0
        assert asyncio.run(read(server.url, "score", READERS)) == [newest] * READERS
        asyncio.run(eventually(lambda: valkey.exists("score:news")))
        assert sscan_calls(valkey) == 2 * one_build
        valkey.close()
