"""A user's data can be exported, deleted and renamed."""

from __future__ import annotations

from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live.history import AudienceHistory
from plaza.live.personal_data import LivePersonalData
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from plaza.live.viewing_sessions import ViewingSessions
from tests.live.conftest import ViewerActions


@pytest.fixture
def personal_data(
    functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock
) -> LivePersonalData:
    return LivePersonalData(functions, history, ViewingSessions(functions, history, settings, clock))


async def test_an_export_has_every_viewing_session_and_no_address(
    viewers: ViewerActions, personal_data: LivePersonalData, recorder: AudienceRecorder, clock: ManualClock
) -> None:
    started = clock.now_ms()
    await viewers.beat("ana", "S1", address="203.0.113.77")
    clock.advance(seconds=60)
    await viewers.leave("ana", "S1")
    await recorder.record()
    await viewers.beat("ana", event="E2", address="203.0.113.77", country="NZ", groups=("dev", "press"))
    await viewers.beat("ana", event="E2", location="tv", country="NZ", groups=("dev", "press"))
    export = await personal_data.export("ana")
    now = started + 60_000
    assert export["viewing_sessions"] == [
        {"event": "E1", "session": "S1", "location": "web", "joined": started, "left": now}
    ]
    first, second = sorted(export["recent_events"], key=lambda each: str(each["event"]))
    places = sorted(second.pop("places"), key=lambda place: str(place["location"]))
    place = {"session": "S1", "location": "web", "joined": started, "last_heartbeat": now}
    assert first == {"event": "E1", "last_seen": now, "country": "ZZ", "groups": [], "places": [place]}
    assert second == {"event": "E2", "last_seen": now, "country": "NZ", "groups": ["dev", "press"]}
    assert places == [
        {"session": None, "location": location, "joined": now, "last_heartbeat": now} for location in ("tv", "web")
    ]
    assert "203.0.113.77" not in str(export)


async def test_a_deleted_user_is_in_no_key_and_others_stay(
    viewers: ViewerActions,
    personal_data: LivePersonalData,
    recorder: AudienceRecorder,
    figures: AudienceFigures,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    for name in ("ana", "ben"):
        await viewers.beat(name, "S1", groups=("dev",))
        await viewers.beat(name, location="phone", groups=("dev",))
        await viewers.leave(name, location="phone")
    await recorder.record()
    await viewers.beat("ana", location="phone", groups=("dev",))
    await viewers.leave("ana", location="phone")
    await personal_data.delete("ana")
    await personal_data.delete("ana")
    assert await _mentions(redis_client, "ana") == []
    assert await personal_data.export("ana") == {"viewing_sessions": [], "recent_events": []}
    now = await figures.breakdown.for_event("E1")
    assert (now.viewer_count, now.count_by_user_group, now.count_by_viewing_country) == (1, {"dev": 1}, {"ZZ": 1})
    assert (await figures.breakdown.for_session("S1")).viewer_count == 1


async def test_a_renamed_user_is_the_same_viewer(
    viewers: ViewerActions,
    personal_data: LivePersonalData,
    recorder: AudienceRecorder,
    figures: AudienceFigures,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    await viewers.beat("ana", "S1", country="NZ", groups=("dev",))
    await viewers.beat("ana", location="phone", country="NZ", groups=("dev",))
    await viewers.leave("ana", location="phone")
    await recorder.record()
    await viewers.beat("ana", location="tv", country="NZ", groups=("dev",))
    await viewers.leave("ana", location="tv")
    await viewers.beat("ben")
    before, ever = await figures.breakdown.for_event("E1"), await figures.totals.get("E1")
    for _ in range(2):
        await personal_data.rename("ana", "eva")
    assert await _mentions(redis_client, "ana") == []
    assert (await figures.breakdown.for_event("E1"), await figures.totals.get("E1")) == (before, ever)
    clock.advance(seconds=30)
    await viewers.beat("eva", "S1", country="NZ", groups=("dev",))
    assert (await figures.totals.get("E1")).logins == ever.logins, "the viewing session continues under the new name"
    await recorder.record()
    export = await personal_data.export("eva")
    assert [each["location"] for each in export["viewing_sessions"]] == ["phone", "tv"]


async def test_renaming_to_an_existing_viewer_leaves_one_viewer(
    viewers: ViewerActions,
    personal_data: LivePersonalData,
    figures: AudienceFigures,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    for first, last in (("ana", "eva"), ("eva", "ana")):
        await viewers.beat(first, country="FR")
        clock.advance(seconds=1)
        await viewers.beat(last, country="NZ")
        await personal_data.rename("ana", "eva")
        assert (await figures.breakdown.for_event("E1")).count_by_viewing_country == {"NZ": 1}
    assert await _mentions(redis_client, "ana") == []


async def _mentions(redis_client: Any, name: str) -> list[str]:
    """Return every key that contains the name."""
    found = []
    async for key in redis_client.scan_iter():
        if key.startswith(("plaza:", "events:")):
            continue
        kind = await redis_client.type(key)
        if kind == "zset":
            text = str(await redis_client.zrange(key, 0, -1))
        elif kind == "set":
            text = str(await redis_client.smembers(key))
        elif kind == "string":
            text = str(await redis_client.get(key))
        else:
            text = str(await redis_client.hgetall(key))
        if name in text:
            found.append(key)
    return found
