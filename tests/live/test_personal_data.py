"""What is held about a person can be shown to them, and forgotten."""

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
from tests.live.conftest import Crowd


@pytest.fixture
def people(functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock) -> LivePersonalData:
    return LivePersonalData(functions, history, ViewingSessions(functions, history, settings, clock))


async def test_an_export_has_every_viewing_session_and_no_address(
    crowd: Crowd, people: LivePersonalData, recorder: AudienceRecorder, clock: ManualClock
) -> None:
    begun = clock.now_ms()
    await crowd.beat("ana", "S1", address="203.0.113.77")
    clock.advance(seconds=60)
    await crowd.leave("ana", "S1")
    await recorder.record()
    await crowd.beat("ana", event="E2", address="203.0.113.77")
    export = await people.export("ana")
    assert export["viewing_sessions"] == [
        {"event": "E1", "session": "S1", "location": "web", "joined": begun, "left": begun + 60_000}
    ]
    assert sorted(export["recent_events"], key=lambda each: each["event"]) == [
        {"event": "E1", "last_seen": begun + 60_000},
        {"event": "E2", "last_seen": begun + 60_000},
    ]
    assert "203.0.113.77" not in str(export)


async def test_a_forgotten_person_is_nowhere_and_others_stay(
    crowd: Crowd,
    people: LivePersonalData,
    recorder: AudienceRecorder,
    figures: AudienceFigures,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    for name in ("ana", "ben"):
        await crowd.beat(name, "S1", groups=("dev",))
        await crowd.beat(name, location="phone", groups=("dev",))
        await crowd.leave(name, location="phone")
    await recorder.record()
    await crowd.beat("ana", location="phone", groups=("dev",))
    await crowd.leave("ana", location="phone")
    await people.delete("ana")
    await people.delete("ana")
    assert await _mentions(redis_client, "ana") == []
    assert await people.export("ana") == {"viewing_sessions": [], "recent_events": []}
    now = await figures.statistics("E1")
    assert (now.viewer_count, now.count_by_user_group, now.count_by_viewing_country) == (1, {"dev": 1}, {"ZZ": 1})
    assert (await figures.session_statistics("S1")).viewer_count == 1


async def test_a_renamed_person_is_the_same_viewer(
    crowd: Crowd,
    people: LivePersonalData,
    recorder: AudienceRecorder,
    figures: AudienceFigures,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    await crowd.beat("ana", "S1", country="NZ", groups=("dev",))
    await crowd.beat("ana", location="phone", country="NZ", groups=("dev",))
    await crowd.leave("ana", location="phone")
    await recorder.record()
    await crowd.beat("ana", location="tv", country="NZ", groups=("dev",))
    await crowd.leave("ana", location="tv")
    await crowd.beat("ben")
    before, ever = await figures.statistics("E1"), await figures.totals("E1")
    for _ in range(2):
        await people.rename("ana", "eva")
    assert await _mentions(redis_client, "ana") == []
    assert (await figures.statistics("E1"), await figures.totals("E1")) == (before, ever)
    clock.advance(seconds=30)
    await crowd.beat("eva", "S1", country="NZ", groups=("dev",))
    assert (await figures.totals("E1")).logins == ever.logins, "her viewing session goes on under the new name"
    await recorder.record()
    export = await people.export("eva")
    assert [each["location"] for each in export["viewing_sessions"]] == ["phone", "tv"]


async def test_renaming_to_a_name_that_watches_too_leaves_one_viewer(
    crowd: Crowd, people: LivePersonalData, figures: AudienceFigures, clock: ManualClock, redis_client: Any
) -> None:
    for first, last in (("ana", "eva"), ("eva", "ana")):
        await crowd.beat(first, country="FR")
        clock.advance(seconds=1)
        await crowd.beat(last, country="NZ")
        await people.rename("ana", "eva")
        assert (await figures.statistics("E1")).count_by_viewing_country == {"NZ": 1}
    assert await _mentions(redis_client, "ana") == []


async def _mentions(redis_client: Any, name: str) -> list[str]:
    """Every key with the name anywhere in it."""
    found = []
    async for key in redis_client.scan_iter():
        if key.startswith("plaza:"):
            continue
        kind = await redis_client.type(key)
        if kind == "zset":
            text = str(await redis_client.zrange(key, 0, -1))
        elif kind == "set":
            text = str(await redis_client.smembers(key))
        else:
            text = str(await redis_client.hgetall(key))
        if name in text:
            found.append(key)
    return found
