"""Under load viewers are told to beat less often, and the window follows, so that nobody is lost who obeys."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.errors import TooFast
from plaza.core.functions import Functions
from plaza.core.rate_limits import Quota
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory
from plaza.live.model import HeartbeatPace
from plaza.live.statistics import AudienceFigures
from plaza.live.viewers import HeartbeatThrottle
from plaza.live.viewing_sessions import ViewingSessions
from tests.live.conftest import Crowd


def test_the_interval_is_what_the_target_needs_in_steps_between_30_and_120_seconds() -> None:
    pace = HeartbeatPace(heartbeats_per_second=10)
    for alive, seconds in ((0, 30), (300, 30), (301, 35), (350, 35), (500, 50), (1200, 120), (90_000, 120), (10, 30)):
        pace.update("E1", alive, 1)
        assert pace.interval_ms == seconds * 1000, alive


def test_all_events_together_are_the_load_and_one_that_ended_is_forgotten() -> None:
    pace = HeartbeatPace(heartbeats_per_second=10)
    pace.update("E1", 300, 1)
    pace.update("E2", 300, 1)
    assert pace.interval_ms == 60_000
    pace.update("E2", 300, 400_000)
    assert pace.interval_ms == 30_000


async def test_the_window_follows_the_interval(crowd: Crowd, figures: AudienceFigures, clock: ManualClock) -> None:
    crowd.live.pace = HeartbeatPace(heartbeats_per_second=1)
    for i in range(50):
        await crowd.beat(f"p{i}", "S1")
    heard = await crowd.beat("last", "S1")
    assert heard.next_heartbeat_ms == 50_000
    overview = await figures.overview("E1")
    assert overview.window_ms == 2 * 50_000 + 5_000
    clock.advance(seconds=105)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (51, 51)
    clock.advance(seconds=0.001)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (0, 0)


async def test_the_window_falls_only_when_everyone_has_heard_of_it(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    crowd.live.pace = HeartbeatPace(heartbeats_per_second=1)
    crowd.live.pace.update("other", 100, clock.now_ms())
    assert (await crowd.beat("slow")).next_heartbeat_ms == 100_000
    crowd.live.pace = HeartbeatPace(heartbeats_per_second=1_000)
    clock.advance(seconds=99)
    assert (await crowd.beat("quick")).next_heartbeat_ms == 30_000
    assert await figures.alive("E1") == 2, "one who was told 100 s is not late at 99 s"
    clock.advance(seconds=1)
    await crowd.beat("slow")
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "2", "and goes on with the same viewing session"
    clock.advance(seconds=208)
    await crowd.beat("quick")
    assert (await figures.overview("E1")).window_ms == 65_000


async def test_a_shorter_interval_takes_nothing_from_who_was_told_a_longer_one(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock
) -> None:
    for name, seconds, later in (("slow", 100, 100), ("slower", 100, 143), ("quick", 50, 61)):
        crowd.live.pace = HeartbeatPace(heartbeats_per_second=1)
        crowd.live.pace.update("other", seconds, clock.now_ms())
        assert (await crowd.beat(name)).next_heartbeat_ms == seconds * 1000
        clock.advance(seconds=later)
    assert await figures.alive("E1") == 2, "one who was told 100 s, 204 s ago, is not late"
    clock.advance(seconds=2)
    assert await figures.alive("E1") == 1


async def test_whoever_beats_as_asked_is_alive_all_the_time_while_the_interval_moves(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    """One viewer of a quiet event, on a platform whose load comes and goes."""
    for seconds in (120, 100, 100, 100, 70, 70, 70, 70, 45, 45, 45, 60, 60, 30, 30, 30, 30, 30, 120, 30, 30):
        crowd.live.pace = HeartbeatPace(heartbeats_per_second=1)
        crowd.live.pace.update("other", seconds, clock.now_ms())
        assert (await crowd.beat("ana", "S1")).next_heartbeat_ms == seconds * 1000
        for _ in range(10):
            clock.advance(seconds=seconds / 10)
            assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1), seconds
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "1"
    clock.advance(seconds=400)
    assert (await figures.overview("E1")).window_ms == 65_000


async def test_a_viewer_who_vanished_has_left_as_soon_as_the_window_is_over(
    crowd: Crowd, functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock
) -> None:
    viewing_sessions = ViewingSessions(functions, history, settings, clock)
    await crowd.beat("ana")
    clock.advance(seconds=65)
    assert [viewing.under_way async for viewing in viewing_sessions.iterate("E1")] == [True]
    clock.advance(seconds=0.001)
    assert [viewing.under_way async for viewing in viewing_sessions.iterate("E1")] == [False]


def test_beats_are_limited_and_come_back_with_time(clock: ManualClock) -> None:
    throttle, quota = HeartbeatThrottle(clock), Quota(3, 60)
    for _ in range(3):
        throttle.take("ana", quota)
    with pytest.raises(TooFast) as refused:
        throttle.take("ana", quota)
    assert refused.value.retry_after == pytest.approx(20)
    throttle.take("ben", quota)
    clock.advance(seconds=20)
    throttle.take("ana", quota)
    with pytest.raises(TooFast):
        throttle.take("ana", quota)
