"""Heartbeats that arrive together are one call to Valkey, and each counts as if it had come alone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from plaza.live import keys
from plaza.live.creation_limits import NEW_PLACES
from plaza.live.heartbeat_batches import MAX_BEATS_PER_CALL
from plaza.live.heartbeats import LiveService
from plaza.live.library import LIBRARY
from plaza.live.model import Heartbeat, HeartbeatResult, TooManyNewPlaces, Viewer
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from tests.live.conftest import ViewerActions

WINDOW_MS = 65_000


async def calls_of_beats(client: Any) -> int:
    stats = await client.info("commandstats")
    return int(stats.get("cmdstat_fcall", {"calls": 0})["calls"])


async def test_heartbeats_of_one_turn_are_one_call(
    viewers: ViewerActions, valkey: Valkey, redis_client: Any, clock: ManualClock
) -> None:
    names = [f"p{i}" for i in range(MAX_BEATS_PER_CALL + 6)]
    for _ in range(2):
        clock.advance(seconds=30)
        before = None if valkey.clustered else await calls_of_beats(redis_client)
        results = await asyncio.gather(*(viewers.beat(name, "S1", groups=("crew",)) for name in names))
        if before is not None:
            assert await calls_of_beats(redis_client) == before + 2
        assert max(result.alive for result in results) == len(names)
    now = clock.now_ms()
    for name in (keys.EVENT_HEARTBEAT("E1"), keys.SESSION_HEARTBEAT("S1"), keys.SESSION_VIEWING_END("E1", "S1", "web")):
        assert await redis_client.zcount(name, now, now) == len(names)
    assert await redis_client.zcount(keys.EVENT_STATISTICS("E1"), now, now) == len(names)
    assert await redis_client.zcard(keys.SESSION_STATISTICS("S1")) == len(names)
    assert await redis_client.hgetall(keys.SESSION_COUNTS("S1")) == {"c#ZZ": str(len(names)), "g#crew": str(len(names))}
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "peak") == str(len(names))


async def test_a_request_has_the_round_trips_of_its_batch(viewers: ViewerActions) -> None:
    async def beat(name: str) -> RequestUsage:
        usage = RequestUsage()
        REQUEST_USAGE.set(usage)
        await viewers.beat(name)
        return usage

    await viewers.beat("first")  # which takes more, because the event is new
    used = await asyncio.gather(*(asyncio.create_task(beat(name)) for name in ("ana", "ben")))
    assert used[0].trips == used[1].trips >= 1


async def test_a_viewer_who_is_refused_does_not_stop_the_others(live: LiveService, redis_client: Any) -> None:
    mallory = Viewer("~mallory", "", "ZZ", client="203.0.113.9")
    for n in range(NEW_PLACES.count):
        await live.beat(mallory, "E1", Heartbeat(f"location{n}"))
    results = await asyncio.gather(
        *(live.beat(each, "E1", Heartbeat("one-more", "S1")) for each in (mallory, Viewer("ana", "", "ZZ"), mallory)),
        return_exceptions=True,
    )
    assert isinstance(results[0], TooManyNewPlaces)
    assert isinstance(results[1], HeartbeatResult)
    assert results[1].session_alive == 2
    # The others have created the place, so mallory may watch there too.
    assert isinstance(results[2], HeartbeatResult)
    assert set(await redis_client.zrange(keys.SESSION_HEARTBEAT("S1"), 0, -1)) == {"ana", "~mallory"}


async def test_a_viewer_twice_in_a_batch_counts_once(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    for _ in range(2):
        await asyncio.gather(*(viewers.beat("ana", "S1", country="NZ", groups=("crew",)) for _ in range(3)))
        clock.advance(seconds=30)
    # Another address and another country, in one turn.
    await asyncio.gather(
        viewers.beat("ana", "S1", country="NZ", groups=("crew",), address="198.51.100.9"),
        viewers.beat("ana", "S1", country="FR"),
    )
    for statistics in (await figures.breakdown.for_event("E1"), await figures.breakdown.for_session("S1")):
        assert (statistics.count_by_viewing_country, statistics.count_by_user_group) == ({"FR": 1}, {})
    assert await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1) == ["ana#203.0.113.7##FR"]
    assert await redis_client.zrange(keys.SESSION_STATISTICS("S1"), 0, -1) == ["ana#203.0.113.7##FR"]
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "1"


async def test_late_heartbeats_in_a_batch_keep_the_later_time(
    viewers: ViewerActions, clock: ManualClock, redis_client: Any
) -> None:
    await asyncio.gather(*(viewers.beat(name) for name in ("ana", "ben")))
    started = clock.now_ms()
    clock.advance(seconds=20)
    await viewers.beat("ben")
    clock.advance(seconds=-10)
    await asyncio.gather(*(viewers.beat(name) for name in ("ana", "ben")))
    expected = [("ana", started + 10_000), ("ben", started + 20_000)]
    assert await redis_client.zrange(keys.EVENT_HEARTBEAT("E1"), 0, -1, withscores=True) == expected
    found = await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1, withscores=True)
    assert [score for _, score in found] == [score for _, score in expected]


async def test_addresses_of_known_viewers_change_in_a_batch(
    viewers: ViewerActions, clock: ManualClock, redis_client: Any
) -> None:
    names = [f"p{i}" for i in range(5)]
    await asyncio.gather(*(viewers.beat(name, "S1") for name in names))
    clock.advance(seconds=30)
    await asyncio.gather(*(viewers.beat(name, "S1", address=f"198.51.100.{i}") for i, name in enumerate(names)))
    expected = {f"p{i}#198.51.100.{i}##ZZ" for i in range(5)}
    assert set(await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1)) == expected
    assert set(await redis_client.zrange(keys.SESSION_STATISTICS("S1"), 0, -1)) == expected


def small_steps() -> Any:
    """The library, with limits that a few viewers reach."""
    lua = LIBRARY.lua.replace(
        "local MAX_PASSED_BY_BEAT, MAX_PASSED_BY_WORKER, MAX_PASSED_BY_READ = 1000, 5000, 5000",
        "local MAX_PASSED_BY_BEAT, MAX_PASSED_BY_WORKER, MAX_PASSED_BY_READ = 2, 3, 3",
    )
    assert lua != LIBRARY.lua
    return dataclasses.replace(LIBRARY, lua=lua)


@pytest.mark.parametrize("worker", [False, True])
async def test_a_crowd_that_leaves_at_once_is_uncounted_in_steps(
    valkey: Valkey, history: Any, settings: Settings, clock: ManualClock, redis_client: Any, worker: bool
) -> None:
    functions = Functions(valkey, [small_steps()])
    await functions.load()
    viewers = ViewerActions(LiveService(functions, settings, clock))
    figures = AudienceFigures(functions, history, settings, clock)
    recorder = AudienceRecorder(functions, history, settings, clock)
    names = [f"p{i}" for i in range(20)]
    await asyncio.gather(*(viewers.beat(name, "S1", country="NZ", groups=("crew",)) for name in names))
    await asyncio.gather(*(viewers.beat(f"early{i}", "S1", country="FR") for i in range(2)))
    clock.advance(seconds=30)
    await viewers.beat("stays", "S1", country="FR")
    clock.set(clock.now_ms() - 30_000 + WINDOW_MS + 1)
    if worker:
        await recorder.record()
    for statistics in (await figures.breakdown.for_event("E1"), await figures.breakdown.for_session("S1")):
        assert (statistics.count_by_viewing_country, statistics.count_by_user_group) == ({"FR": 1}, {})
    for _ in range(12):
        clock.advance(seconds=10)
        await viewers.beat("stays", "S1", country="FR")
        found = await figures.breakdown.for_event("E1")
        assert Counter(found.count_by_viewing_country) == {"FR": 1}
    assert await redis_client.hgetall(keys.EVENT_COUNTS("E1")) == {"c#FR": "1"}
