"""Quality reports and sources of viewers: right within a bucket, bounded, and available after a purge."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.valkey import Valkey
from plaza.live import keys
from plaza.live.heartbeats import LiveService
from plaza.live.history import AudienceHistory
from plaza.live.library import LIBRARY
from plaza.live.model import Heartbeat, PlaybackQuality
from plaza.live.player_reports import OTHER_SITES, PlayerReports, bucket_of, percentile, save_reports
from plaza.live.recorder import AudienceRecorder
from plaza.live.report_history import ReportHistory
from tests.live.conftest import AT, Web, plaza_at, viewer


@pytest.fixture
def reports(functions: Functions, history: AudienceHistory, settings: Settings) -> PlayerReports:
    return PlayerReports(functions, history.reports, dataclasses.replace(settings, live_sources=True))


@pytest.fixture
def watching(functions: Functions, settings: Settings, clock: ManualClock, reports: PlayerReports) -> LiveService:
    return LiveService(functions, settings, clock, reports=reports)


def test_percentiles_are_within_a_tenth_of_the_exact_ones() -> None:
    rng = random.Random(3)
    for _ in range(50):
        values = sorted(int(rng.lognormvariate(6, 2)) % 600_000 for _ in range(rng.randint(1, 400)))
        counts = Counter(map(bucket_of, values))
        for share in (0.5, 0.95):
            exact = values[max(0, -int(-share * len(values) // 1) - 1)]
            found = percentile(counts, share)
            assert found is not None
            assert abs(found - exact) <= 0.1 * exact + 1, (found, exact)
    assert percentile(Counter(), 0.5) is None


async def test_quality_is_counted_by_country_and_stays_after_a_purge(
    watching: LiveService,
    reports: PlayerReports,
    recorder: AudienceRecorder,
    settings: Settings,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    for n in range(20):
        quality = PlaybackQuality(start_ms=1_000 if n < 19 else 30_000, buffering_count=n % 2, errors=1)
        await watching.beat(viewer(f"p{n}", country="NZ"), "E1", Heartbeat("web", quality=quality))
    await watching.beat(viewer("ana", country="FR"), "E1", Heartbeat("web", quality=PlaybackQuality(buffering_ms=0)))
    await watching.beat(viewer("ben", country="FR"), "E1", Heartbeat("web"))
    found = await reports.quality("E1")
    assert [(each.country, each.reports) for each in found.countries] == [("NZ", 20), ("FR", 1)]
    nz, fr = found.countries
    assert nz.start_ms_p50 == pytest.approx(1_000, rel=0.1)
    assert nz.start_ms_p95 == pytest.approx(1_000, rel=0.1), "19 of 20"
    assert (nz.stalls, nz.errors, nz.buffering_ms_p50) == (10, 20, None)
    assert (fr.start_ms_p50, fr.buffering_ms_p50, fr.buffering_ms_p95) == (None, 0, 0)
    assert (found.total.country, found.total.reports) == (None, 21)
    await recorder.record()
    assert await reports.quality("E1") == found, "the same counts in Valkey and in SQL count once"
    clock.advance(seconds=400)
    await recorder.record()
    clock.advance(seconds=(settings.live_retention_days + 1) * 86_400)
    assert await recorder.purge() == 1
    assert await redis_client.exists(keys.EVENT_REPORTS("E1")) == 0
    assert await reports.quality("E1") == found
    again = Heartbeat("web", quality=PlaybackQuality(errors=2))
    await watching.beat(viewer("ana", country="FR"), "E1", again)
    assert (await reports.quality("E1")).total.errors == 22, "a new life adds to the earlier one"


async def test_sources_count_once_per_viewing_session_and_sites_are_limited(
    valkey: Valkey, history: AudienceHistory, settings: Settings, clock: ManualClock, redis_client: Any
) -> None:
    functions = Functions(valkey, [dataclasses.replace(LIBRARY, constants={**LIBRARY.constants, "MAX_REFERRERS": 3})])
    await functions.load()
    reports = PlayerReports(functions, history.reports, dataclasses.replace(settings, live_sources=True))
    live = LiveService(functions, settings, clock, reports=reports)
    for n in range(6):
        for _ in range(2):
            beat = Heartbeat("web", device="phone", referrer=f"Site{n}.example")
            await live.beat(viewer(f"p{n}"), "E1", beat)
    found = await reports.sources("E1")
    assert found.devices == {"phone": 6}
    assert found.referrers == {OTHER_SITES: 3, "site0.example": 1, "site1.example": 1, "site2.example": 1}
    clock.advance(seconds=100)
    await live.beat(viewer("p0"), "E1", Heartbeat("web", device="tv", referrer="site0.example"))
    found = await reports.sources("E1")
    assert (found.devices, found.referrers["site0.example"]) == ({"phone": 6, "tv": 1}, 2)
    assert len(await redis_client.hkeys(keys.EVENT_REPORTS("E1"))) == 7


async def test_quality_is_counted_by_device_and_site_and_sites_are_limited(
    valkey: Valkey, history: AudienceHistory, settings: Settings, clock: ManualClock
) -> None:
    constants = {**LIBRARY.constants, "MAX_QUALITY_SITES": 2}
    functions = Functions(valkey, [dataclasses.replace(LIBRARY, constants=constants)])
    await functions.load()
    reports = PlayerReports(functions, history.reports, dataclasses.replace(settings, live_sources=True))
    live = LiveService(functions, settings, clock, reports=reports)
    for n in range(8):
        quality = PlaybackQuality(start_ms=1_000.5 * (n + 1), buffering_ms=9, buffering_count=1, errors=n)
        beat = Heartbeat("web", quality=quality, device="phone", referrer=f"Site_{n % 4}.example")
        if n == 7:
            beat.device = "tv"
        await live.beat(viewer(f"p{n}", country="NZ"), "E1", beat)
    await live.beat(viewer("ana", country="FR"), "E1", Heartbeat("web", quality=PlaybackQuality(buffering_ms=5)))
    found = await reports.quality("E1")
    assert (found.total.reports, found.total.errors) == (9, 28), "devices and sites add nothing to the total"
    assert [(each.country, each.reports) for each in found.countries] == [("NZ", 8), ("FR", 1)]
    phone, tv = found.devices
    assert (phone.device, phone.reports, phone.stalls, phone.errors) == ("phone", 7, 7, 21)
    assert phone.start_ms_p50 == pytest.approx(4_000, rel=0.1)
    assert tv.start_ms_p50 == pytest.approx(8_000, rel=0.1)
    sites = [(each.referrer, each.reports, each.errors) for each in found.referrers]
    assert sites == [(OTHER_SITES, 4, 18), ("site_0.example", 2, 4), ("site_1.example", 2, 6)]
    assert found.referrers[0].start_ms_p95 == pytest.approx(8_000, rel=0.1)
    await save_reports(valkey, history.reports, "E1")
    assert await reports.quality("E1") == found
    in_sql = await history.reports.read("E1", except_born_at=None)
    assert in_sql["buffering", "FR", bucket_of(5)] == 1
    assert in_sql["buffering_device", "phone", bucket_of(9)] == 7


async def test_counts_of_a_life_are_written_once(sql: Sql) -> None:
    history, field = ReportHistory(sql), ("start", "NZ", 3)
    for count in (5, 5, 4):
        await history.save("E1", 1, {field: count, ("errors", "NZ", 0): 1})
    await history.save("E1", 2, {field: 7})
    assert (await history.read("E1", except_born_at=None))[field] == 12
    assert await history.read("E1", except_born_at=1) == {field: 7}


async def test_sources_are_ignored_unless_the_setting_is_on(web: Web, redis_client: Any) -> None:
    ana = web.user("ana")
    answer = await web.beat(ana, quality={"start_ms": 700.5}, device="phone", referrer="my_site.example")
    assert answer.status_code == 200
    assert await web.figure("/sources") == {"devices": {}, "referrers": {}}
    quality = await web.figure("/quality")
    assert (quality["total"]["reports"], quality["devices"], quality["referrers"]) == (1, [], [])
    assert set(await redis_client.hkeys(keys.EVENT_REPORTS("E1"))) == {"reports#ZZ#0", "start#ZZ#38"}
    for wrong in (
        {"quality": {"start_ms": 600_001}},
        {"quality": {"start_ms": -1}},
        {"quality": {"other": 1}},
        {"device": "fridge"},
        {"referrer": "a#b"},
        {"referrer": "x" * 101},
    ):
        assert (await web.beat(ana, **wrong)).status_code == 422, wrong
    for path in ("quality", "sources"):
        assert (await web.client.get(f"{AT}/{path}", headers=ana)).status_code == 403


async def test_the_setting_counts_sources(valkey: Valkey, place: Any, tmp_path: Any) -> None:
    async with plaza_at(place, tmp_path, live_sources=True) as web:
        await web.beat(web.user("ana"), device="tv", referrer="example.org")
        assert await web.figure("/sources") == {"devices": {"tv": 1}, "referrers": {"example.org": 1}}
