"""What anonymous viewers can create is limited, and declarations of admins win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.creation_limits import NEW_EVENTS, NEW_PLACES
from plaza.live.heartbeats import LiveService
from plaza.live.model import (
    MAX_NEW_EVENT_BYTES,
    MAX_SESSIONS,
    EventDeclaration,
    Heartbeat,
    NewEventTooLarge,
    SessionOfAnotherEvent,
    SessionUndeclared,
    TooManyEvents,
    TooManyNewEvents,
    TooManyNewPlaces,
    TooManyPlaces,
    Viewer,
)
from plaza.live.schedule import MAX_SESSIONS_SHOWN, EventSchedule
from plaza.live.statistics import AudienceFigures
from tests.live.conftest import AT, ViewerActions, Web, viewer

MALLORY = Viewer("~mallory", "203.0.113.0", "ZZ", client="203.0.113.9")


async def test_an_address_creates_a_limited_number_of_undeclared_events(live: LiveService, clock: ManualClock) -> None:
    for n in range(NEW_EVENTS.count):
        await live.beat(MALLORY, f"E{n}", Heartbeat("web"))
    with pytest.raises(TooManyNewEvents) as refused:
        await live.beat(MALLORY, "one-more", Heartbeat("web"))
    assert refused.value.status == 429
    assert (await live.beat(MALLORY, "E0", Heartbeat("web"))).alive == 1, "events that exist are not limited"
    assert (await live.beat(Viewer("ana", "", "ZZ", client="198.51.100.1"), "other", Heartbeat("web"))).alive == 1
    clock.advance(seconds=NEW_EVENTS.seconds / NEW_EVENTS.count)
    assert (await live.beat(MALLORY, "one-more", Heartbeat("web"))).alive == 1


async def test_an_address_creates_a_limited_number_of_places_also_on_declared_events(
    live: LiveService, clock: ManualClock, redis_client: Any
) -> None:
    await live.declare("E1", EventDeclaration(sessions=["S1"]))
    for n in range(NEW_PLACES.count):
        await live.beat(MALLORY, "E1", Heartbeat(f"location{n}", "S1" if n % 2 else None))
    with pytest.raises(TooManyNewPlaces) as refused:
        await live.beat(MALLORY, "E1", Heartbeat("one-more"))
    assert refused.value.status == 429
    with pytest.raises(TooManyNewPlaces):
        await live.beat(MALLORY, "E2", Heartbeat("a new event has a new place too"))
    assert await redis_client.hlen(keys.EVENT_ROOMS("E1")) == NEW_PLACES.count
    assert (await live.beat(MALLORY, "E1", Heartbeat("location0"))).alive == 1, "places that exist are not limited"
    other = Viewer("ana", "", "ZZ", client="198.51.100.1")
    assert (await live.beat(other, "E1", Heartbeat("one-more"))).alive == 2
    clock.advance(seconds=NEW_PLACES.seconds / NEW_PLACES.count)
    assert (await live.beat(MALLORY, "E1", Heartbeat("another"))).alive >= 1


async def test_the_names_of_a_new_place_are_limited_in_bytes(live: LiveService, redis_client: Any) -> None:
    await live.beat(viewer("ana"), "E1", Heartbeat("web"))
    long = [f"{n:0>120}" for n in range(20)]
    with pytest.raises(NewEventTooLarge):
        await live.beat(viewer("ana"), "E1", Heartbeat("web", "S1", groups=long))
    assert await redis_client.exists(keys.SESSION_INFO("S1")) == 0
    await live.declare("E1", EventDeclaration(sessions=["S1"], groups=long))
    assert (await live.beat(viewer("ana"), "E1", Heartbeat("web", "S1", groups=long))).session_alive == 1


async def test_the_number_of_events_is_limited_and_declared_ones_are_accepted(
    functions: Functions, tmp_path: Path, clock: ManualClock
) -> None:
    live = LiveService(functions, Settings(data_dir=tmp_path, live_max_events=3), clock)
    for n in range(3):
        await live.beat(viewer("ana"), f"E{n}", Heartbeat("web"))
    with pytest.raises(TooManyEvents):
        await live.beat(viewer("ana"), "E3", Heartbeat("web", "S3"))
    assert await functions.valkey.call("EXISTS", keys.SESSION_INFO("S3")) == 0, "a refused heartbeat claims no session"
    await live.declare("E3", EventDeclaration())
    assert (await live.beat(viewer("ana"), "E3", Heartbeat("web"))).alive == 1
    await functions.valkey.call("ZREM", keys.LIVE_EVENTS(), "E0", "E1")  # as a purge does
    with pytest.raises(TooManyEvents):
        await live.beat(viewer("ana"), "E4", Heartbeat("web"))
    assert (await live.beat(viewer("ana"), "E4", Heartbeat("web"))).alive == 1, "the refusal counted the events again"


async def test_the_names_of_a_new_event_are_limited_in_bytes(live: LiveService, redis_client: Any) -> None:
    groups = [f"{n:0>60}" for n in range(20)]
    with pytest.raises(NewEventTooLarge) as refused:
        await live.beat(viewer("ana"), "E1", Heartbeat("web", groups=groups))
    assert refused.value.status == 413
    with pytest.raises(NewEventTooLarge):
        await live.beat(viewer("ana"), "本" * (MAX_NEW_EVENT_BYTES // 3), Heartbeat("web"))
    assert await redis_client.exists(keys.EVENT_INFO("E1")) == 0
    await live.declare("E1", EventDeclaration(title="Large", groups=groups))
    assert (await live.beat(viewer("ana"), "E1", Heartbeat("web", groups=groups))).alive == 1


async def test_heartbeats_create_no_session_and_no_group_of_a_declared_event(
    live: LiveService, figures: AudienceFigures, redis_client: Any
) -> None:
    await live.declare("E1", EventDeclaration(sessions=["S1"], groups=["crew"]))
    with pytest.raises(SessionUndeclared) as refused:
        await live.beat(viewer("ana"), "E1", Heartbeat("web", "S2"))
    assert refused.value.status == 403
    assert await redis_client.exists(keys.SESSION_INFO("S2")) == 0
    await live.beat(viewer("ana"), "E1", Heartbeat("web", "S1", ["crew", "invented"]))
    await live.beat(Viewer("ben", "", "ZZ", ("press",)), "E1", Heartbeat("web", "S1"))
    for statistics in (await figures.breakdown.for_event("E1"), await figures.breakdown.for_session("S1")):
        assert statistics.count_by_user_group == {"crew": 1, "press": 1}
    assert await redis_client.hlen(keys.EVENT_GROUP_NAMES("E1")) == 2
    assert await redis_client.hlen(keys.SESSION_GROUP_NAMES("S1")) == 2


async def test_sessions_of_an_event_stay_valid_when_it_is_declared(viewers: ViewerActions, live: LiveService) -> None:
    await viewers.beat("ana", "S1")
    await live.declare("E1", EventDeclaration(title="Now with a title"))
    assert (await viewers.beat("ben", "S1")).session_alive == 2


async def test_a_declaration_takes_a_session_from_an_undeclared_event(
    viewers: ViewerActions, live: LiveService, figures: AudienceFigures
) -> None:
    await viewers.beat("mallory", "S1", event="squatter")
    declared = await live.declare("E1", EventDeclaration(sessions=["S1"]))
    assert declared.sessions == ["S1"]
    assert (await viewers.beat("ana", "S1")).session_alive == 1, "the session starts without the other viewers"
    assert (await figures.totals.get("E1", "S1")).attended == 1
    with pytest.raises(SessionOfAnotherEvent):
        await viewers.beat("mallory", "S1", event="squatter")
    assert (await live.get_event("squatter")).sessions == []
    with pytest.raises(SessionOfAnotherEvent):
        await live.declare("E2", EventDeclaration(sessions=["S1"]))


async def test_a_declaration_makes_room_by_deleting_undeclared_sessions(live: LiveService, redis_client: Any) -> None:
    await live.declare("E1", EventDeclaration(sessions=["kept"]))
    await redis_client.sadd(keys.EVENT_SESSIONS("E1"), *(f"squat{i}" for i in range(MAX_SESSIONS - 1)))
    declared = await live.declare("E1", EventDeclaration(sessions=["S1", "S2"]))
    assert {"kept", "S1", "S2"} <= set(declared.sessions)
    assert len(declared.sessions) == MAX_SESSIONS
    await live.declare("E2", EventDeclaration(sessions=[f"T{i}" for i in range(MAX_SESSIONS)]))
    with pytest.raises(TooManyPlaces):
        await live.declare("E2", EventDeclaration(sessions=["one-more"]))


async def test_an_admin_deletes_a_session_and_a_group(web: Web, redis_client: Any) -> None:
    await web.beat(web.user("ana"), session_id="S1", groups=["crew", "press"])
    await web.beat(web.user("ben"), session_id="S2", groups=["press"])
    for path in ("/sessions/S1", "/groups/press"):
        assert (await web.client.delete(AT + path, headers=web.user("ana"))).status_code == 403
        assert (await web.client.delete(AT + path, headers=web.admin)).status_code == 204
        assert (await web.client.delete(AT + path, headers=web.admin)).status_code == 404
    assert (await web.figure(""))["sessions"] == ["S2"]
    assert [name async for name in redis_client.scan_iter("*S1*")] == []
    statistics = await web.figure("/statistics/live")
    assert (statistics["viewerCount"], statistics["countByUserGroup"]) == (2, {"crew": 1})
    members = await redis_client.zrange(keys.EVENT_STATISTICS("E1"), 0, -1)
    assert sorted(member.split("#")[2:] for member in members) == [["", "ZZ"], ["crew", "ZZ"]]
    await web.beat(web.user("cleo"), groups=["staff"])
    statistics = await web.figure("/statistics/live")
    assert statistics["countByUserGroup"] == {"crew": 1, "staff": 1}, (
        "the number of the deleted group is not used again"
    )


async def test_a_deleted_group_leaves_the_statistics_members_of_all_viewers_of_one_moment(
    live: LiveService, viewers: ViewerActions, clock: ManualClock, redis_client: Any
) -> None:
    await viewers.beat("ana", groups=("crew", "press"))
    members = keys.EVENT_STATISTICS("E1")
    others = {f"viewer{n}#203.0.113.7#press#ZZ": clock.now_ms() for n in range(1_001)}
    odd = "odd" + 9_000 * "#"
    await redis_client.zadd(members, {odd: 1, **others})
    assert await live.delete_group("E1", "press")
    (left, ana, *rest) = await redis_client.zrange(members, 0, -1, withscores=True)
    assert left == (odd, 1)
    assert ana == ("ana#203.0.113.7#crew#ZZ", clock.now_ms())
    assert {(member.split("#", 1)[1], score) for member, score in rest} == {("203.0.113.7##ZZ", clock.now_ms())}


async def test_public_pages_show_a_limited_number_of_sessions(
    functions: Functions, live: LiveService, figures: AudienceFigures, clock: ManualClock
) -> None:
    await live.declare("E1", EventDeclaration(sessions=[f"S{i:03}" for i in range(200)]))
    shown = await EventSchedule(functions.valkey, live, figures, clock).get_event("E1")
    assert shown is not None
    assert (len(shown.sessions), shown.session_count) == (MAX_SESSIONS_SHOWN, 200)
