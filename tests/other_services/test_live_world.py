"""The audience of a live event that another service wrote by the document alone."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from plaza.live.history import AudienceHistory
from plaza.live.recorder import AudienceRecorder
from tests.other_services.live_service import AnalyticsService
from tests.other_services.running import PlazaBesideOthers, assert_unchanged

pytestmark = pytest.mark.usefixtures("audit_at_full_speed")

MINUTE_MS = 60_000
AT = "/analytics/events/launch"


class LiveWorld:
    """Ana and Ben watch now, Ben at two places; Cleo left eight minutes ago; Eli attended and has no heartbeat."""

    def __init__(self, service: AnalyticsService) -> None:
        self.service = service
        self.now = service.now()

    async def write(self) -> None:
        beat, now = self.service.beat, self.now
        ana, ben, cleo = "198.51.100.1#press#NZ", "198.51.100.2#crew#staff#FR", "198.51.100.3#press#AU"
        keynote = {"session": "keynote", "location": "hall A"}
        await beat("launch", "ana", now - 5_000.25, start=now - 10 * MINUTE_MS, details=ana, **keynote)
        await beat("launch", "ben", now - 20_000, start=now - 2 * MINUTE_MS, details=ben, location="web")
        await beat("launch", "ben", now - 20_000, start=now - MINUTE_MS, details=ben, **keynote)
        await beat("launch", "cleo", now - 8 * MINUTE_MS, start=now - 9 * MINUTE_MS, details=cleo, **keynote)
        await self.service.client.sadd(f"{self.service.owned('launch')}#EventAttendedUsers", "eli")


@pytest.fixture
async def world(beside: PlazaBesideOthers) -> LiveWorld:
    world = LiveWorld(AnalyticsService(beside))
    await world.write()
    return world


async def figure(beside: PlazaBesideOthers, path: str) -> Any:
    return await beside.get(f"{AT}{path}")


async def assert_shown(beside: PlazaBesideOthers, world: LiveWorld) -> None:
    for path, count in {
        "/viewers/active-count": 2,
        "/viewers/count": 2,
        f"/viewers/count?from={world.now - 60 * MINUTE_MS}": 3,
        "/viewers/all-time-active-count": 4,
        "/viewers/total-attended-count": 4,
        "/viewers/max-concurrent-count": 2,
        "/viewers/total-login-count": 4,
        "/sessions/keynote/viewers/active-count": 2,
        "/sessions/keynote/viewers/total-attended-count": 3,
        "/sessions/keynote/viewers/max-concurrent-count": 2,
    }.items():
        assert await figure(beside, path) == {"count": count}, path
    statistics = await figure(beside, "/statistics/live")
    assert (statistics["viewerCount"], statistics["countByViewingCountry"]) == (2, {"NZ": 1, "FR": 1})
    assert statistics["countByUserGroup"] == {"press": 1, "crew": 1, "staff": 1}
    session = await figure(beside, "/sessions/keynote/statistics/live")
    assert (session["viewerCount"], session["countByViewingCountry"]) == (2, {"NZ": 1, "FR": 1})
    overview = await figure(beside, "/overview")
    assert (overview["active"], overview["attended"]) == (2, 4)
    assert [each["id"] for each in overview["sessions"]] == ["keynote"]
    stats = await figure(beside, "/sessions/keynote/viewers/viewing-stats")
    assert stats["viewers"] == 3
    answer = await beside.http.get(f"{AT}/attendance.csv", headers=beside.api_key)
    rows = [(row["viewer"], row["session"], row["location"]) for row in csv.DictReader(io.StringIO(answer.text))]
    assert sorted(rows) == [
        ("ana", "keynote", "hall A"),
        ("ben", "", "web"),
        ("ben", "keynote", "hall A"),
        ("cleo", "keynote", "hall A"),
    ]
    report = (await beside.http.post(f"{AT}/heartbeat-report", headers=beside.api_key)).json()["viewers"]
    assert {viewer["user_id"] for viewer in report} == {"ana", "ben"}


async def test_an_audience_of_another_service_is_shown_and_kept(beside: PlazaBesideOthers, world: LiveWorld) -> None:
    core = beside.plaza.core
    recorder = AudienceRecorder(core.functions, AudienceHistory(core.sql), core.settings, core.clock)
    before = await beside.documented_keys()
    report = await beside.repair()
    assert report.clean, report.left
    assert_unchanged(await beside.documented_keys(), before)
    await recorder.discover()
    await recorder.record()
    await assert_shown(beside, world)
    assert_unchanged(await beside.documented_keys(), before)
    assert (await beside.repair()).clean
    await recorder.record()
    assert_unchanged(await beside.documented_keys(), before)
    await assert_shown(beside, world)
