"""A heartbeat updates everything, and what it leaves in the documented keys is true for anyone who reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.errors import Conflict
from plaza.core.settings import Settings
from plaza.core.valkey import REQUEST_USAGE, RequestUsage, Valkey
from plaza.live import keys
from plaza.live.model import (
    EventDeclaration,
    EventUndeclared,
    Heartbeat,
    SessionOfAnotherEvent,
    TooManyPlaces,
    Viewer,
)
from plaza.live.service import LiveService
from plaza.live.statistics import AudienceFigures
from tests.live.conftest import Crowd, watcher

WINDOW_MS = 65_000


async def test_a_beat_writes_the_documented_keys(crowd: Crowd, clock: ManualClock, redis_client: Any) -> None:
    heard = await crowd.beat("ana", "S1", address="198.51.100.4", country="NZ", groups=("staff", "dev"))
    now = clock.now_ms()
    assert (heard.alive, heard.session_alive, heard.next_heartbeat_ms) == (1, 1, 30_000)
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


async def test_a_beat_without_a_session_leaves_that_part_out(
    crowd: Crowd, redis_client: Any, clock: ManualClock
) -> None:
    heard = await crowd.beat("ana")
    assert heard.session_alive is None
    assert await redis_client.zscore(keys.VIEWING_START("E1", "web"), "ana") == clock.now_ms()
    assert await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1) == ["ana#203.0.113.7##ZZ"]


async def test_a_beat_is_one_round_trip_and_on_a_cluster_at_most_five(crowd: Crowd, valkey: Valkey) -> None:
    most = 5 if valkey.clustered else 1
    for beat in (crowd.beat("ana", "S1"), crowd.beat("ana", "S1"), crowd.beat("ben"), crowd.leave("ana", "S1")):
        usage = RequestUsage()
        mark = REQUEST_USAGE.set(usage)
        await beat
        REQUEST_USAGE.reset(mark)
        assert 1 <= usage.trips <= most


async def test_alive_is_exactly_the_window(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    await crowd.beat("ana", "S1")
    begun = clock.now_ms()
    clock.set(begun + WINDOW_MS)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    assert await redis_client.zcount(keys.EVENT_HEARTBEAT("E1"), clock.now_ms() - WINDOW_MS, "+inf") == 1
    clock.set(begun + WINDOW_MS + 1)
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (0, 0)
    assert await redis_client.zcount(keys.EVENT_HEARTBEAT("E1"), clock.now_ms() - WINDOW_MS, "+inf") == 0


async def test_a_gap_up_to_the_window_goes_on_and_a_longer_one_begins_anew(
    crowd: Crowd, clock: ManualClock, redis_client: Any
) -> None:
    start, end = keys.viewing_keys("E1", "", "web")
    await crowd.beat("ana")
    begun = clock.now_ms()
    clock.set(begun + WINDOW_MS)
    await crowd.beat("ana")
    assert await redis_client.zscore(start, "ana") == begun
    assert await redis_client.zscore(end, "ana") == begun + WINDOW_MS
    clock.set(begun + 2 * WINDOW_MS + 1)
    await crowd.beat("ana")
    assert await redis_client.zscore(start, "ana") == begun + 2 * WINDOW_MS + 1
    assert await redis_client.zscore(end, "ana") == begun + 2 * WINDOW_MS + 1
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "2"


async def test_two_tabs_two_sessions_and_two_addresses_are_one_viewer(
    crowd: Crowd, figures: AudienceFigures, redis_client: Any
) -> None:
    await crowd.beat("ana", "S1", country="NZ", groups=("dev",))
    await crowd.beat("ana", "S1", location="phone", address="198.51.100.4", country="FR", groups=("ops",))
    await crowd.beat("ana", "S2", address="2001:db8::1", country="FR", groups=("ops",))
    await crowd.beat("ben", "S2", country="NZ", groups=("dev", "ops"))
    now = await figures.statistics("E1")
    assert (now.viewer_count, await figures.alive("E1")) == (2, 2)
    assert now.count_by_viewing_country == {"FR": 1, "NZ": 1}
    assert now.count_by_user_group == {"dev": 1, "ops": 2}
    assert await redis_client.zcard(keys.EVENT_STATISTICS("E1")) == 2, (
        "one member per viewer, so naive readers are right"
    )
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "peak") == "2"
    assert (await figures.session_statistics("S2")).count_by_user_group == {"dev": 1, "ops": 2}


async def test_beats_out_of_order_and_jumping_clocks_move_nothing_back(
    crowd: Crowd, clock: ManualClock, redis_client: Any
) -> None:
    start, end = keys.viewing_keys("E1", "", "web")
    begun = clock.now_ms()
    for offset in (0, 20_000, 5_000, -3_600_000, 40_000, 10_000_000, 50_000, 60_000):
        clock.set(begun + offset)
        await crowd.beat("ana", country="NZ" if offset else "FR")
        last = await redis_client.zscore(end, "ana")
        assert last >= await redis_client.zscore(start, "ana")
        assert await redis_client.zscore(keys.EVENT_HEARTBEAT("E1"), "ana") >= begun
    assert await redis_client.zscore(end, "ana") == begun + 10_000_000
    assert await redis_client.zscore(start, "ana") == begun + 10_000_000
    assert await redis_client.zscore(keys.EVENT_HEARTBEAT("E1"), "ana") == begun + 10_000_000


async def test_leaving_ends_the_viewing_session_now(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    start, end = keys.viewing_keys("E1", "S1", "web")
    await crowd.beat("ana", "S1", country="NZ", groups=("dev",))
    await crowd.beat("ben", "S1")
    clock.advance(seconds=10)
    assert (await crowd.leave("ana", "S1")).ended
    assert await redis_client.zscore(end, "ana") == clock.now_ms()
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    assert (await figures.statistics("E1")).count_by_viewing_country == {"ZZ": 1}
    assert (await figures.session_statistics("S1")).count_by_user_group == {}
    assert await figures.seen("E1") == 2, "she was there in the last five minutes"
    assert await redis_client.sismember(keys.EVENT_ATTENDED("E1"), "ana")
    clock.advance(seconds=1)
    assert not (await crowd.leave("ana", "S1")).ended, "there is nothing left to end"
    heard = await crowd.beat("ana", "S1")
    assert (heard.alive, heard.session_alive) == (2, 2)
    assert await redis_client.zscore(start, "ana") == clock.now_ms(), "coming back begins a new viewing session"
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "logins") == "3"
    assert await figures.seen("E1") == 2


async def test_leaving_one_tab_is_not_leaving_the_event(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock
) -> None:
    await crowd.beat("ana", "S1")
    await crowd.beat("ana", "S1", location="phone")
    await crowd.beat("ana", "S2")
    await crowd.leave("ana", "S1")
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    await crowd.leave("ana", "S1", location="phone")
    assert (await figures.alive("E1"), await figures.session_alive("S1"), await figures.session_alive("S2")) == (
        1,
        0,
        1,
    )
    await crowd.leave("ana", "S2")
    assert (await figures.alive("E1"), await figures.session_alive("S2")) == (0, 0)


async def test_a_session_belongs_to_one_event(crowd: Crowd, redis_client: Any) -> None:
    await crowd.beat("ana", "S1")
    with pytest.raises(SessionOfAnotherEvent) as refused:
        await crowd.beat("ben", "S1", event="E2")
    assert isinstance(refused.value, Conflict)
    assert await redis_client.exists(keys.EVENT_HEARTBEAT("E2")) == 0, "nothing was written"
    assert await redis_client.zcard(keys.SESSION_HEARTBEAT("S1")) == 1


async def test_of_several_events_that_name_a_new_session_at_once_one_gets_it(
    live: LiveService, redis_client: Any
) -> None:
    others = [LiveService(live._functions, Settings(), live._clock) for _ in range(6)]  # as many processes
    for turn in range(10):
        beats = (each.beat(watcher("ana"), f"E{i}", Heartbeat("web", f"S{turn}")) for i, each in enumerate(others))
        heard = await asyncio.gather(*beats, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in heard) == ["HeartbeatResult"] + 5 * ["SessionOfAnotherEvent"]
        owner = await redis_client.hget(keys.SESSION_INFO(f"S{turn}"), "event")
        named = [i for i in range(6) if await redis_client.sismember(keys.EVENT_SESSIONS(f"E{i}"), f"S{turn}")]
        assert [f"E{i}" for i in named] == [owner], "and the others know nothing of it"


async def test_what_is_refused_claims_no_session(live: LiveService, redis_client: Any) -> None:
    live._only_declared = "1"
    with pytest.raises(EventUndeclared):
        await live.beat(watcher("ana"), "E1", Heartbeat("web", "S1"))
    live._only_declared = "0"
    assert (await live.beat(watcher("ana"), "E2", Heartbeat("web", "S1"))).session_alive == 1
    with pytest.raises(SessionOfAnotherEvent):
        await live.declare("E3", EventDeclaration(sessions=["S7", "S1", "S8"]))
    assert (await live.declare("E4", EventDeclaration(sessions=["S7", "S8"]))).sessions == ["S7", "S8"]


async def test_only_declared_events_are_taken_if_a_setting_says_so(live: LiveService, redis_client: Any) -> None:
    live._only_declared = "1"
    with pytest.raises(EventUndeclared):
        await live.beat(watcher("ana"), "E1", Heartbeat("web", "S1"))
    assert await redis_client.exists(keys.EVENT_INFO("E1")) == 0
    assert await redis_client.exists(keys.SESSION_INFO("S1")) == 0
    declared = await live.declare("E1", EventDeclaration(title="Opening night", sessions=["S1"]))
    assert (declared.title, declared.sessions) == ("Opening night", ["S1"])
    assert (await live.beat(watcher("ana"), "E1", Heartbeat("web", "S1"))).alive == 1
    with pytest.raises(SessionOfAnotherEvent):
        await live.declare("E2", EventDeclaration(sessions=["S2", "S1"]))
    assert await redis_client.exists(keys.EVENT_INFO("E2")) == 0
    assert (await live.declare("E1", EventDeclaration(sessions=["S3"]))).title == "Opening night", "the title is kept"


async def test_places_of_an_event_are_bounded(crowd: Crowd, redis_client: Any) -> None:
    await redis_client.sadd(keys.EVENT_SESSIONS("E1"), *(f"other{i}" for i in range(999)))
    await crowd.beat("ana", "S1")
    with pytest.raises(TooManyPlaces):
        await crowd.beat("ana", "S2")
    assert await redis_client.exists(keys.SESSION_HEARTBEAT("S2")) == 0
    await crowd.beat("ana", "S1", location="another")


async def test_groups_of_the_token_count_and_said_ones_only_without(
    live: LiveService, figures: AudienceFigures
) -> None:
    await live.beat(Viewer("ana", "local", "ZZ", ("press", "bad#one")), "E1", Heartbeat("web", groups=["invented"]))
    await live.beat(Viewer("ben", "local", "ZZ"), "E1", Heartbeat("web", groups=["b", "a", "b"]))
    await live.beat(Viewer("cy", "local", "ZZ", ()), "E1", Heartbeat("web", groups=["vip"]))
    assert (await figures.statistics("E1")).count_by_user_group == {"press": 1, "a": 1, "b": 1}, (
        "a token that names no groups gives none"
    )


async def test_invented_groups_cannot_grow_without_end(live: LiveService, figures: AudienceFigures) -> None:
    for first in range(0, 220, 20):
        await live.beat(watcher("ana"), "E1", Heartbeat("web", groups=[f"g{first + i}" for i in range(20)]))
    await live.beat(watcher("ben"), "E1", Heartbeat("web", groups=["g0", "one-too-many"]))
    await live.beat(Viewer("cy", "local", "ZZ", ("given",)), "E1", Heartbeat("web"))
    groups = (await figures.statistics("E1")).count_by_user_group
    assert groups["g0"] == 1
    assert "one-too-many" not in groups
    assert groups["given"] == 1, "what tokens say still counts"


async def test_one_viewer_watches_at_twenty_places_at_most(crowd: Crowd, clock: ManualClock, redis_client: Any) -> None:
    begun = clock.now_ms()
    for i in range(22):
        clock.set(begun + i)
        await crowd.beat("ana", location=f"tab{i}")
    finished = await redis_client.zrange(keys.EVENT_FINISHED("E1"), 0, -1, withscores=True)
    assert finished == [(f"ana#{begun}#tab0", begun), (f"ana#{begun + 1}#tab1", begun + 1)]
    assert await redis_client.hget(keys.EVENT_INFO("E1"), "peak") == "1"


async def test_leaving_where_the_raw_viewing_session_is_gone_does_no_harm(
    crowd: Crowd, figures: AudienceFigures, redis_client: Any
) -> None:
    await crowd.beat("ana")
    for name in keys.viewing_keys("E1", "", "web"):
        await redis_client.delete(name)
    await crowd.leave("ana")
    assert await figures.alive("E1") == 0
