"""Figures by day: each event counts once, in its day, and imports do not count."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.event_streams import stream_of
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.desk import growth as growth_module
from plaza.desk.growth import Growth
from plaza.desk.keys import ACTIVE_USERS

DAY_MS = 86_400_000

in_pairs = pytest.mark.parametrize(
    ("place", "sql_settings"), [("server", "postgresql"), ("cluster", "sqlite")], indirect=True
)


@pytest.fixture
async def growth(valkey: Valkey, sql: Sql, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Growth:
    monkeypatch.setattr(growth_module, "BATCH", 2)
    return Growth(sql, valkey, clock, ["social", "articles", "shop"])


async def emit(redis_client: Any, time_ms: int, type: str, origin: str = "", stream: str = "", **data: Any) -> None:
    name = stream or {"article": "articles", "order": "shop"}.get(type.partition(".")[0], "social")
    fields = {"type": type, "subject": "1", "time": str(time_ms), "data": json.dumps(data), "origin": origin}
    await redis_client.xadd(stream_of(name, str(data)).key, fields)


@in_pairs
async def test_each_event_counts_once_in_its_day(growth: Growth, clock: ManualClock, redis_client: Any) -> None:
    now = clock.now_ms()
    yesterday = now - DAY_MS
    for name in ("ana", "ben"):
        await emit(redis_client, yesterday, "user.registered", username=name)
    await emit(redis_client, yesterday, "user.registered", "import", username="cid")
    for post in range(3):
        await emit(redis_client, now, "post.created", author="ana", post=str(post))
    for direction in ("up", "down", None):
        await emit(redis_client, now, "article.voted", username="ben", article="1", direction=direction)
    await emit(redis_client, now, "order.placed", username=None, order=1)
    await emit(redis_client, now, "post.banned", author="zoe", post="1")
    await asyncio.gather(growth.count_new(), growth.count_new())  # of two workers one is late
    await growth.count_new()
    assert await growth.count_new() == 0
    before, last, today = (await growth.figures(3)).days
    assert (before.new_users, before.active) == (0, 0)
    assert (last.new_users, last.active, last.posts) == (2, 2, 0)
    assert (today.new_users, today.active, today.posts, today.votes, today.orders) == (0, 2, 3, 2, 1)
    assert 0 < await redis_client.ttl(ACTIVE_USERS(today.day)) <= 40 * 86_400


@in_pairs
async def test_a_smaller_count_of_active_users_replaces_no_larger_one(
    growth: Growth, clock: ManualClock, redis_client: Any
) -> None:
    for post, author in enumerate(("ana", "ben")):
        await emit(redis_client, clock.now_ms(), "post.created", author=author, post=str(post))
    await growth.count_new()
    (today,) = (await growth.figures(1)).days
    await redis_client.delete(ACTIVE_USERS(today.day))
    await emit(redis_client, clock.now_ms(), "post.created", author="ana", post="2")
    await growth.count_new()
    (later,) = (await growth.figures(1)).days
    assert (later.active, later.posts) == (today.active, 3) == (2, 3)


@in_pairs
async def test_odd_events_of_other_services_are_survived(growth: Growth, clock: ManualClock, redis_client: Any) -> None:
    key = stream_of("social", "1").key
    for fields in (
        {"type": "post.created", "time": "9" * 18, "data": '{"author": "ana"}'},
        {"type": "post.created", "data": "[1]"},
        {"type": "post.liked", "data": "{"},
        {"nonsense": "1"},
    ):
        await redis_client.xadd(key, fields)
    assert await growth.count_new() == 4
    (today,) = (await growth.figures(1)).days
    assert today.active == 0
