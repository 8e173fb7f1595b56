"""Heartbeats and leaving, and what they write to the documented keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.errors import Conflict
from plaza.core.settings import Settings
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from plaza.live import keys
from plaza.live.heartbeats import LiveService
from plaza.live.model import (
    MAX_UNDECLARED_SESSIONS,
    EventDeclaration,
    EventUndeclared,
    Heartbeat,
    SessionOfAnotherEvent,
    TooManyPlaces,
    Viewer,
)
from plaza.live.statistics import AudienceFigures
from tests.live.conftest import ViewerActions, viewer

WINDOW_MS = 65_000


async def test_a_heartbeat_writes_the_documented_keys(
    viewers: ViewerActions, clock: ManualClock, redis_client: Any
) -> None:
    result = await viewers.beat("ana", "S1", address="198.51.100.4", country="NZ", groups=("staff", "dev"))
    now = clock.now_ms()
    assert (result.alive, result.session_alive, result.next_heartbeat_ms) == (1, 1, 30_000)
    member = "ana#198.51.100.4#dev#staff#NZ"
    assert await redis_client.zscore(keys.EVENT_HEARTBEAT("E1"), "ana") == now
    assert await redis_client.zscore(keys.SESSION_HEARTBEAT("S1"), "ana") == now
    assert await redis_client.zscore(keys.SESSION_VIEWING_START("E1", "S1", "web"), "ana") == now
    assert await redis_client.zscore(keys.SESSION_VIEWING_END("E1", "S1", "web"), "ana") == now
    assert await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1, withscores=True) == [(member, now)]
    assert await redis_client.zrange(keys.SESSION_STATISTICS("S1"), 0, -1, withscores=True) == [(member, now)]
    assert await redis_client.smembers(keys.EVENT_ATTENDED("E1")) == {"ana"}
    assert await redis_client.smembers(keys.SESSION_ATTENDED("S1")) == {"ana"}
    assert await redis_client.exists(keys.VIEWING_START("E1", "web")) == 0, "a beat with a session writes its key only"


def test_names_on_one_server_are_the_documented_ones() -> None:
    names = [*keys.event_audience("E")[:3], *keys.session_audience("S")[:3]]
    assert names == [
        "E#Event#Heartbeat",
        "E#Event#Statistics",
        "E#EventAttendedUsers",
        "S#Session#Heartbeat",
        "S#Session#Statistics",
        "S#SessionAttendedUsers",
    ]
    assert keys.viewing_keys("E", "", "L") == ["E#L#ViewingSessionStart", "E#L#ViewingSessionEnd"]
    assert keys.viewing_keys("E", "S", "L") == ["E#S#L#ViewingSessionStart", "E#S#L#ViewingSessionEnd"]


async def test_the_key_of_a_heartbeat_without_a_session_has_no_session_part(
    viewers: ViewerActions, redis_client: Any, clock: ManualClock
) -> None:
    result = await viewers.beat("ana")
    assert result.session_alive is None
    assert await redis_client.zscore(keys.VIEWING_START("E1", "web"), "ana") == clock.now_ms()
    assert await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1) == ["ana#203.0.113.7##ZZ"]


async def test_a_heartbeat_is_one_round_trip_and_on_a_cluster_at_most_two(
    viewers: ViewerActions, valkey: Valkey
) -> None:
    """On a cluster a new event takes more, and the start and the end of a viewing session, which emit events."""
    most = (8, 2, 3, 4) if valkey.clustered else (2, 1, 1, 1)
    beats = (viewers.beat("ana", "S1"), viewers.beat("ana", "S1"), viewers.beat("ben"), viewers.leave("ana", "S1"))
    for beat, limit in zip(beats, most, strict=True):
        usage = RequestUsage()
        mark = REQUEST_USAGE.set(usage)
        await beat
        REQUEST_USAGE.reset(mark)
        assert 1 <= usage.trips <= limit


async def test_alive_is_exactly_the_window(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    await viewers.beat("ana", "S1")
    started = clock.now_ms()
    clock.set(started + WINDOW_MS)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    assert await redis_client.zcount(keys.EVENT_HEARTBEAT("E1"), clock.now_ms() - WINDOW_MS, "+inf") == 1
    clock.set(started + WINDOW_MS + 1)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (0, 0)
    assert await redis_client.zcount(keys.EVENT_HEARTBEAT("E1"), clock.now_ms() - WINDOW_MS, "+inf") == 0


async def test_a_gap_longer_than_the_window_begins_a_new_viewing_session(
    viewers: ViewerActions, clock: ManualClock, redis_client: Any
) -> None:
    start, end = keys.viewing_keys("E1", "", "web")
    await viewers.beat("ana")
    started = clock.now_ms()
    clock.set(started + WINDOW_MS)
    await viewers.beat("ana")
    assert await redis_client.zscore(start, "ana") == started
    assert await redis_client.zscore(end, "ana") == started + WINDOW_MS
    clock.set(started + 2 * WINDOW_MS + 1)
    await viewers.beat("ana")
    assert await redis_client.zscore(start, "ana") == started + 2 * WINDOW_MS + 1
    assert await redis_client.zscore(end, "ana") == started + 2 * WINDOW_MS + 1
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "2"


async def test_two_tabs_two_sessions_and_two_addresses_are_one_viewer(
    viewers: ViewerActions, figures: AudienceFigures, redis_client: Any
) -> None:
    await viewers.beat("ana", "S1", country="NZ", groups=("dev",))
    await viewers.beat("ana", "S1", location="phone", address="198.51.100.4", country="FR", groups=("ops",))
    await viewers.beat("ana", "S2", address="2001:db8::1", country="FR", groups=("ops",))
    await viewers.beat("ben", "S2", country="NZ", groups=("dev", "ops"))
    now = await figures.breakdown.for_event("E1")
    assert (now.viewer_count, await figures.alive("E1")) == (2, 2)
    assert now.count_by_viewing_country == {"FR": 1, "NZ": 1}
    assert now.count_by_user_group == {"dev": 1, "ops": 2}
    assert await redis_client.zcard(keys.EVENT_STATISTICS("E1")) == 2, (
        "one member per viewer, so other readers count right"
    )
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "peak") == "2"
    assert (await figures.breakdown.for_session("S2")).count_by_user_group == {"dev": 1, "ops": 2}


async def test_heartbeats_follow_a_clock_that_jumps_and_move_no_end_back(
    viewers: ViewerActions, clock: ManualClock, redis_client: Any
) -> None:
    start, end = keys.viewing_keys("E1", "", "web")
    started = clock.now_ms()
    for offset in (0, 20_000, 5_000, -3_600_000, 40_000, 10_000_000, 50_000, 60_000):
        clock.set(started + offset)
        await viewers.beat("ana", country="NZ" if offset else "FR")
        last = await redis_client.zscore(end, "ana")
        assert last >= await redis_client.zscore(start, "ana")
        assert 0 <= await redis_client.zscore(keys.EVENT_HEARTBEAT("E1"), "ana") - clock.now_ms() <= 15_000
    assert await redis_client.zscore(end, "ana") == started + 10_000_000
    assert await redis_client.zscore(start, "ana") == started + 10_000_000


async def test_viewers_who_are_gone_do_not_count_after_the_clock_was_set_back(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    await viewers.beat("ana", "S1")
    await viewers.beat("ben", "S1")
    clock.advance(seconds=-3600)
    assert (await viewers.beat("ana", "S1")).alive == 1
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    assert (await figures.breakdown.for_event("E1")).viewer_count == 1
    clock.advance(seconds=100)
    assert await figures.alive("E1") == 0


async def test_leaving_ends_the_viewing_session_now(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    start, end = keys.viewing_keys("E1", "S1", "web")
    await viewers.beat("ana", "S1", country="NZ", groups=("dev",))
    await viewers.beat("ben", "S1")
    clock.advance(seconds=10)
    assert (await viewers.leave("ana", "S1")).ended
    assert await redis_client.zscore(end, "ana") == clock.now_ms()
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    assert (await figures.breakdown.for_event("E1")).count_by_viewing_country == {"ZZ": 1}
    assert (await figures.breakdown.for_session("S1")).count_by_user_group == {}
    assert await figures.seen("E1") == 2, "ana was there in the last five minutes"
    assert await redis_client.sismember(keys.EVENT_ATTENDED("E1"), "ana")
    clock.advance(seconds=1)
    assert not (await viewers.leave("ana", "S1")).ended, "nothing is left to end"
    result = await viewers.beat("ana", "S1")
    assert (result.alive, result.session_alive) == (2, 2)
    assert await redis_client.zscore(start, "ana") == clock.now_ms(), "coming back begins a new viewing session"
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "3"
    assert await figures.seen("E1") == 2


async def test_leaving_one_tab_is_not_leaving_the_event(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    await viewers.beat("ana", "S1")
    await viewers.beat("ana", "S1", location="phone")
    await viewers.beat("ana", "S2")
    await viewers.leave("ana", "S1")
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    await viewers.leave("ana", "S1", location="phone")
    assert (await figures.alive("E1"), await figures.session_alive("S1"), await figures.session_alive("S2")) == (
        1,
        0,
        1,
    )
    await viewers.leave("ana", "S2")
    assert (await figures.alive("E1"), await figures.session_alive("S2")) == (0, 0)


async def test_a_session_belongs_to_one_event(viewers: ViewerActions, redis_client: Any) -> None:
    await viewers.beat("ana", "S1")
    with pytest.raises(SessionOfAnotherEvent) as refused:
        await viewers.beat("ben", "S1", event="E2")
    assert isinstance(refused.value, Conflict)
    assert await redis_client.exists(keys.EVENT_HEARTBEAT("E2")) == 0, "nothing was written"
    assert await redis_client.zcard(keys.SESSION_HEARTBEAT("S1")) == 1


async def test_of_several_events_that_claim_a_session_at_once_one_gets_it(live: LiveService, redis_client: Any) -> None:
    others = [LiveService(live._functions, Settings(), live._clock) for _ in range(6)]  # one per process
    for turn in range(10):
        beats = (each.beat(viewer("ana"), f"E{i}", Heartbeat("web", f"S{turn}")) for i, each in enumerate(others))
        result = await asyncio.gather(*beats, return_exceptions=True)
        assert sorted(type(each).__name__ for each in result) == ["HeartbeatResult"] + 5 * ["SessionOfAnotherEvent"]
        owner = await redis_client.hget(keys.SESSION_INFO(f"S{turn}"), "event")
        named = [i for i in range(6) if await redis_client.sismember(keys.EVENT_SESSIONS(f"E{i}"), f"S{turn}")]
        assert [f"E{i}" for i in named] == [owner], "the others do not have it"


async def test_a_refused_operation_claims_no_session(live: LiveService, redis_client: Any) -> None:
    live.batches.only_declared = True
    with pytest.raises(EventUndeclared):
        await live.beat(viewer("ana"), "E1", Heartbeat("web", "S1"))
    live.batches.only_declared = False
    assert (await live.beat(viewer("ana"), "E2", Heartbeat("web", "S1"))).session_alive == 1
    await live.declare("E2", EventDeclaration())
    with pytest.raises(SessionOfAnotherEvent):
        await live.declare("E3", EventDeclaration(sessions=["S7", "S1", "S8"]))
    assert (await live.declare("E4", EventDeclaration(sessions=["S7", "S8"]))).sessions == ["S7", "S8"]


async def test_a_setting_restricts_heartbeats_to_declared_events(live: LiveService, redis_client: Any) -> None:
    live.batches.only_declared = True
    with pytest.raises(EventUndeclared):
        await live.beat(viewer("ana"), "E1", Heartbeat("web", "S1"))
    assert await redis_client.exists(keys.EVENT_INFO("E1")) == 0
    assert await redis_client.exists(keys.SESSION_INFO("S1")) == 0
    declared = await live.declare("E1", EventDeclaration(title="Opening night", sessions=["S1"]))
    assert (declared.title, declared.sessions) == ("Opening night", ["S1"])
    assert (await live.beat(viewer("ana"), "E1", Heartbeat("web", "S1"))).alive == 1
    with pytest.raises(SessionOfAnotherEvent):
        await live.declare("E2", EventDeclaration(sessions=["S2", "S1"]))
    assert await redis_client.exists(keys.EVENT_INFO("E2")) == 0
    assert (await live.declare("E1", EventDeclaration(sessions=["S3"]))).title == "Opening night", "the title is kept"


async def test_places_of_an_event_are_bounded(viewers: ViewerActions, redis_client: Any) -> None:
    await redis_client.sadd(keys.EVENT_SESSIONS("E1"), *(f"other{i}" for i in range(MAX_UNDECLARED_SESSIONS - 1)))
    await viewers.beat("ana", "S1")
    with pytest.raises(TooManyPlaces):
        await viewers.beat("ana", "S2")
    assert await redis_client.exists(keys.SESSION_HEARTBEAT("S2")) == 0
    await viewers.beat("ana", "S1", location="another")


async def test_groups_of_the_token_replace_claimed_groups(live: LiveService, figures: AudienceFigures) -> None:
    await live.beat(Viewer("ana", "local", "ZZ", ("press", "bad#one")), "E1", Heartbeat("web", groups=["invented"]))
    await live.beat(Viewer("ben", "local", "ZZ"), "E1", Heartbeat("web", groups=["b", "a", "b"]))
    await live.beat(Viewer("cy", "local", "ZZ", ()), "E1", Heartbeat("web", groups=["vip"]))
    assert (await figures.breakdown.for_event("E1")).count_by_user_group == {"press": 1, "a": 1, "b": 1}, (
        "a token that names no groups gives none"
    )


async def test_the_number_of_claimed_groups_is_limited(live: LiveService, figures: AudienceFigures) -> None:
    for first in range(0, 220, 20):
        await live.beat(viewer("ana"), "E1", Heartbeat("web", groups=[f"g{first + i}" for i in range(20)]))
    await live.beat(viewer("ben"), "E1", Heartbeat("web", groups=["g0", "one-too-many"]))
    await live.beat(Viewer("cy", "local", "ZZ", ("given",)), "E1", Heartbeat("web"))
    groups = (await figures.breakdown.for_event("E1")).count_by_user_group
    assert groups["g0"] == 1
    assert "one-too-many" not in groups
    assert groups["given"] == 1, "groups of tokens still count"


async def test_a_viewer_watches_at_most_twenty_places(
    viewers: ViewerActions, clock: ManualClock, redis_client: Any
) -> None:
    started = clock.now_ms()
    for i in range(22):
        clock.set(started + i)
        await viewers.beat("ana", location=f"tab{i}")
    finished = await redis_client.zrange(keys.EVENT_FINISHED("E1"), 0, -1, withscores=True)
    assert finished == [(f"ana#{started}#tab0", started), (f"ana#{started + 1}#tab1", started + 1)]
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "peak") == "1"


async def test_leaving_works_if_the_viewing_session_keys_were_deleted(
    viewers: ViewerActions, figures: AudienceFigures, redis_client: Any
) -> None:
    await viewers.beat("ana")
    for name in keys.viewing_keys("E1", "", "web"):
        await redis_client.delete(name)
    await viewers.leave("ana")
    assert await figures.alive("E1") == 0
