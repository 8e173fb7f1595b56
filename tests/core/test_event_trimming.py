"""Streams are trimmed by age and length; a group that loses events is noted, counted and rebuilt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from plaza.core import event_trimming, metrics
from plaza.core.event_streams import EventStream, stream_of
from plaza.core.event_trimming import EventTrimming
from plaza.core.events import EVENTS, Consumer, Event, Events
from plaza.core.functions import Functions
from plaza.core.leases import JOBS
from plaza.core.valkey import Valkey
from plaza.worker import Worker
from tests.waiting import eventually

OWNER = "ana"
DAY_MS = 86_400_000


@pytest.fixture
async def functions(valkey: Valkey) -> Functions:
    functions = Functions(valkey, [EVENTS, JOBS])
    await functions.load()
    return functions


@pytest.fixture
def events(functions: Functions) -> Events:
    return Events(functions)


def trimming(functions: Functions, *, days: float = 7, max_events: int = 1_000_000) -> EventTrimming:
    """On a cluster the limit of a domain is divided among its 16 streams."""
    per_stream = 16 if functions.valkey.clustered else 1
    return EventTrimming(functions, days, max_events * per_stream)


def stream() -> EventStream:
    return stream_of("news", OWNER)


async def add(redis_client: Any, count: int, age_ms: int = 0) -> None:
    """Add events of a certain age."""
    seconds, micros = (
        await redis_client.time()
        if not hasattr(redis_client, "get_primaries")
        else (await redis_client.time(target_nodes="random"))
    )
    at = int(seconds) * 1000 + int(micros) // 1000 - age_ms
    for n in range(count):
        await redis_client.xadd(stream().key, {"n": n}, id=f"{at}-{n + 1}")


def behind(group: str) -> float:
    labels = {"stream": "news", "group": group}
    return metrics.REGISTRY.get_sample_value("plaza_events_behind_total", labels) or 0.0


async def test_old_events_are_removed_whether_they_were_handled_or_not(functions: Functions, redis_client: Any) -> None:
    await add(redis_client, 230, age_ms=8 * DAY_MS)
    await add(redis_client, 50, age_ms=6 * DAY_MS)
    await redis_client.xadd(stream().dead_key, {"n": 1}, id="1-1")
    await redis_client.xadd(stream().dead_key, {"n": 2})
    assert await trimming(functions).trim("news") == 230  # of the block that has newer events too
    assert await trimming(functions).trim("news") == 0
    assert await redis_client.xlen(stream().key) == 50
    assert await redis_client.xlen(stream().dead_key) == 1


async def test_a_long_stream_is_cut_in_steps(
    functions: Functions, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_trimming, "TRIM_STEP", 300)
    await add(redis_client, 1_000)
    assert await trimming(functions, max_events=200).trim("news") >= 700
    assert 200 <= await redis_client.xlen(stream().key) <= 300
    newest = await redis_client.xrevrange(stream().key, count=1)
    assert newest[0][1] == {"n": "999"}


async def test_a_group_that_loses_events_is_noted_and_counted(
    functions: Functions, events: Events, redis_client: Any
) -> None:
    """One group has handled everything, one has an event in progress, one has read nothing."""
    await add(redis_client, 1_000)
    for group in ("done", "busy", "absent"):
        await events.ensure_group(stream(), group)
    for group in ("done", "busy"):
        read = await redis_client.xreadgroup(group, "c", {stream().key: ">"}, count=1_000)
        ids = [entry[0] for entry in _entries(read)]
        await redis_client.xack(stream().key, group, *(ids if group == "done" else ids[1:]))
    before = behind("absent")
    with structlog.testing.capture_logs() as logs:
        await trimming(functions, max_events=200).trim("news")
    assert (await trimming(functions).groups_behind("news")).keys() == {"busy", "absent"}
    assert behind("absent") > before
    assert {line["group"] for line in logs if line["event"] == "group_fell_behind"} == {"busy", "absent"}


async def test_a_group_behind_is_rebuilt_once(functions: Functions, events: Events, redis_client: Any) -> None:
    rebuilt = 0

    async def rebuild() -> None:
        nonlocal rebuilt
        rebuilt += 1

    async def handle(_: Event) -> None:
        return None

    consumer = Consumer("news", "g", handle, rebuild=rebuild)
    await events.ensure_group(stream(), "g")
    assert not await trimming(functions).rebuild(consumer)
    await add(redis_client, 300, age_ms=8 * DAY_MS)
    await trimming(functions).trim("news")
    worker = Worker(functions, trimming(functions).timers(["news"], [consumer]), [])
    running = asyncio.create_task(worker.run())
    await eventually(lambda: rebuilt)
    await eventually(lambda: _is_empty(functions))
    running.cancel()
    await asyncio.wait([running])
    assert rebuilt == 1
    assert not await trimming(functions).rebuild(consumer)


async def _is_empty(functions: Functions) -> bool:
    return not await trimming(functions).groups_behind("news")


async def test_events_lost_during_a_rebuild_cause_another_one(
    functions: Functions, events: Events, redis_client: Any
) -> None:
    rebuilt = 0

    async def rebuild() -> None:
        nonlocal rebuilt
        rebuilt += 1
        if rebuilt == 1:
            await add(redis_client, 300, age_ms=8 * DAY_MS - 60_000)
            await trimming(functions).trim("news")

    async def handle(_: Event) -> None:
        return None

    consumer = Consumer("news", "g", handle, rebuild=rebuild)
    await events.ensure_group(stream(), "g")
    await add(redis_client, 300, age_ms=8 * DAY_MS)
    await trimming(functions).trim("news")
    await asyncio.sleep(0.002)  # times are milliseconds
    while await trimming(functions).rebuild(consumer):
        pass
    assert rebuilt == 2


async def test_idle_consumers_are_removed_unless_they_have_pending_events(
    functions: Functions, events: Events, redis_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_trimming, "CONSUMER_GONE_MS", 20)
    await events.ensure_group(stream(), "g")
    await add(redis_client, 1)
    await redis_client.xreadgroup("g", "died with pending events", {stream().key: ">"})
    await redis_client.xgroup_createconsumer(stream().key, "g", "left")
    await asyncio.sleep(0.05)
    await trimming(functions).trim("news")
    assert [c["name"] for c in await redis_client.xinfo_consumers(stream().key, "g")] == ["died with pending events"]


def _entries(reply: Any) -> list[Any]:
    """Return the entries of XREADGROUP's reply; redis-py returns a list or a mapping, depending on the protocol."""
    found = list(reply.values()) if isinstance(reply, dict) else [pair[1] for pair in reply]
    entries: list[Any] = found[0]
    return entries[0] if entries and isinstance(entries[0], list) else entries
