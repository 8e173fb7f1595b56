"""Viewers send beats to Plaza and another service at the same time, and nothing is lost."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable
from typing import Any

from plaza.live.history import AudienceHistory
from plaza.live.recorder import AudienceRecorder
from tests.other_services.interleaving import Slots, interleave, is_ours
from tests.other_services.live_service import AnalyticsService
from tests.other_services.running import PlazaBesideOthers, assert_unchanged


class LiveTraffic:
    """Viewers send heartbeats for several places of an event through both services."""

    COUNTRIES = ("NZ", "FR", "ZZ")

    def __init__(self, beside: PlazaBesideOthers) -> None:
        self.beside = beside
        self.other = AnalyticsService(beside)
        self.slots = Slots()
        self.places: dict[tuple[str, str, str], float] = {}  # when each viewing session began, by viewer and place

    @property
    def operations(self) -> list[Any]:
        return [self.beat, self.beat, self.beat, self.read]

    async def beat(self, dice: random.Random) -> None:
        viewer, session = f"viewer{dice.randrange(12)}", dice.choice(("", "talk", "panel"))
        place = (viewer, session, dice.choice(("web", "tv")))
        async with self.slots.take(viewer):
            if is_ours(dice):
                body = {"location": place[2], **({"session_id": session} if session else {})}
                path = "/analytics/events/launch/heartbeat"
                answer = await self.beside.send("POST", path, viewer, body)
                assert answer.status_code == 200, answer.text
            else:
                now = self.other.now() + 0.25
                details = f"198.51.100.7#crew#{dice.choice(self.COUNTRIES)}"
                start = None if place in self.places else now
                await self.other.beat(
                    "launch", viewer, now, location=place[2], session=session, start=start, details=details
                )
            self.places.setdefault(place, 0.0)

    async def read(self, dice: random.Random) -> None:
        path = dice.choice(("statistics/live", "overview", "viewers/active-count", "sessions/talk/statistics/live"))
        answer = await self.beside.http.get(f"/analytics/events/launch/{path}", headers=self.beside.api_key)
        assert answer.status_code == 200, answer.text

    async def assert_nothing_lost(self) -> None:
        client, owned = self.beside.client, self.beside.owned
        viewers = {viewer for viewer, _, _ in self.places}
        assert set(await client.zrange(f"{owned('launch')}#Event#Heartbeat", 0, -1)) == viewers
        assert await client.smembers(f"{owned('launch')}#EventAttendedUsers") == viewers
        for session in {session for _, session, _ in self.places if session}:
            expected = {viewer for viewer, found, _ in self.places if found == session}
            assert set(await client.zrange(f"{owned(session)}#Session#Heartbeat", 0, -1)) == expected
            assert await client.smembers(f"{owned(session)}#SessionAttendedUsers") == expected
            figures = await self.beside.get(f"/analytics/events/launch/sessions/{session}/viewers/active-count")
            assert figures["count"] == len(expected)
        for session, location in {(session, location) for _, session, location in self.places}:
            here = {viewer for viewer, *found in self.places if found == [session, location]}
            place = f"{owned('launch')}#{session}#{location}" if session else f"{owned('launch')}#{location}"
            assert set(await client.zrange(f"{place}#ViewingSessionStart", 0, -1)) == here
            assert set(await client.zrange(f"{place}#ViewingSessionEnd", 0, -1)) == here

    async def assert_shown(self) -> None:
        core = self.beside.plaza.core
        recorder = AudienceRecorder(core.functions, AudienceHistory(core.sql), core.settings, core.clock)
        await recorder.discover()
        await recorder.record()
        viewers = {viewer for viewer, _, _ in self.places}
        overview = await self.beside.get("/analytics/events/launch/overview")
        assert (overview["active"], overview["attended"], overview["logins"]) == (
            len(viewers),
            len(viewers),
            len(self.places),
        )
        statistics = await self.beside.get("/analytics/events/launch/statistics/live")
        assert statistics["viewerCount"] == sum(statistics["countByViewingCountry"].values()) == len(viewers)
        answer = await self.beside.http.get("/analytics/events/launch/attendance.csv", headers=self.beside.api_key)
        rows = [(row["viewer"], row["session"], row["location"]) for row in csv.DictReader(io.StringIO(answer.text))]
        assert sorted(rows) == sorted(self.places)


async def test_audience_services_interleave_without_a_loss(
    beside: PlazaBesideOthers, audits_without_pauses: Callable[[], None]
) -> None:
    traffic = LiveTraffic(beside)
    await interleave(beside, traffic.operations)
    await traffic.assert_nothing_lost()
    audits_without_pauses()
    before = await beside.documented_keys()
    report = await beside.repair()
    assert report.clean, report.left
    assert_unchanged(await beside.documented_keys(), before)
    await traffic.assert_shown()
    assert (await beside.audit()).clean
