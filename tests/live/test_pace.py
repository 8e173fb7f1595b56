"""Under load the heartbeat interval grows, and the window follows it."""

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
from plaza.live.throttle import HeartbeatThrottle
from plaza.live.viewing_sessions import ViewingSessions
from tests.live.conftest import ViewerActions


def test_the_interval_meets_the_target_rate_in_steps_from_30_to_120_seconds() -> None:
    pace = HeartbeatPace(heartbeats_per_second=10)
    for alive, seconds in ((0, 30), (300, 30), (301, 35), (350, 35), (500, 50), (1200, 120), (90_000, 120), (10, 30)):
        pace.update("E1", alive, 1)
        assert pace.interval_ms == seconds * 1000, alive


def test_the_load_is_the_sum_of_all_events_without_ended_ones() -> None:
    pace = HeartbeatPace(heartbeats_per_second=10)
    pace.update("E1", 300, 1)
    pace.update("E2", 300, 1)
    assert pace.interval_ms == 60_000
    pace.update("E2", 300, 400_000)
    assert pace.interval_ms == 30_000


async def test_the_window_follows_the_interval(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    viewers.live.batches.pace = HeartbeatPace(heartbeats_per_second=1)
    for i in range(50):
        await viewers.beat(f"p{i}", "S1")
    result = await viewers.beat("last", "S1")
    assert result.next_heartbeat_ms == 50_000
    overview = await figures.overview("E1")
    assert overview.window_ms == 2 * 50_000 + 5_000
    clock.advance(seconds=105)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (51, 51)
    clock.advance(seconds=0.001)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (0, 0)


async def test_the_window_shrinks_only_when_it_has_passed_for_every_viewer(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    viewers.live.batches.pace = HeartbeatPace(heartbeats_per_second=1)
    viewers.live.batches.pace.update("other", 100, clock.now_ms())
    assert (await viewers.beat("slow")).next_heartbeat_ms == 100_000
    viewers.live.batches.pace = HeartbeatPace(heartbeats_per_second=1_000)
    clock.advance(seconds=99)
    assert (await viewers.beat("quick")).next_heartbeat_ms == 30_000
    assert await figures.alive("E1") == 2, "a viewer with an interval of 100 s is not late at 99 s"
    clock.advance(seconds=1)
    await viewers.beat("slow")
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "2", "the viewing session continues"
    clock.advance(seconds=208)
    await viewers.beat("quick")
    assert (await figures.overview("E1")).window_ms == 65_000


async def test_a_shorter_interval_does_not_end_viewers_with_a_longer_one(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    for name, seconds, later in (("slow", 100, 100), ("slower", 100, 143), ("quick", 50, 61)):
        viewers.live.batches.pace = HeartbeatPace(heartbeats_per_second=1)
        viewers.live.batches.pace.update("other", seconds, clock.now_ms())
        assert (await viewers.beat(name)).next_heartbeat_ms == seconds * 1000
        clock.advance(seconds=later)
    assert await figures.alive("E1") == 2, "a viewer with an interval of 100 s is not late after 204 s"
    clock.advance(seconds=2)
    assert await figures.alive("E1") == 1


async def test_a_viewer_who_keeps_the_interval_stays_alive_while_it_changes(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    """One viewer of a small event, while the load of the platform changes."""
    for seconds in (120, 100, 100, 100, 70, 70, 70, 70, 45, 45, 45, 60, 60, 30, 30, 30, 30, 30, 120, 30, 30):
        viewers.live.batches.pace = HeartbeatPace(heartbeats_per_second=1)
        viewers.live.batches.pace.update("other", seconds, clock.now_ms())
        assert (await viewers.beat("ana", "S1")).next_heartbeat_ms == seconds * 1000
        for _ in range(10):
            clock.advance(seconds=seconds / 10)
            assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1), seconds
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "1"
    clock.advance(seconds=400)
    assert (await figures.overview("E1")).window_ms == 65_000


async def test_a_silent_viewer_has_left_when_the_window_has_passed(
    viewers: ViewerActions, functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock
) -> None:
    viewing_sessions = ViewingSessions(functions, history, settings, clock)
    await viewers.beat("ana")
    clock.advance(seconds=65)
    assert [viewing.under_way async for viewing in viewing_sessions.iterate("E1")] == [True]
    clock.advance(seconds=0.001)
    assert [viewing.under_way async for viewing in viewing_sessions.iterate("E1")] == [False]


def test_heartbeats_are_accepted_after_the_clock_was_set_back(clock: ManualClock) -> None:
    throttle, quota = HeartbeatThrottle(clock), Quota(3, 60)
    throttle.take("ana", quota)
    clock.advance(seconds=-3600)
    throttle.take("ana", quota)
    throttle.take("ana", quota)
    with pytest.raises(TooFast) as refused:
        throttle.take("ana", quota)
    assert refused.value.retry_after == pytest.approx(20)


def test_heartbeats_are_limited_and_the_quota_refills(clock: ManualClock) -> None:
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
