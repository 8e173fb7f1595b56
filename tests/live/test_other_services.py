"""Another service writes the documented keys with a plain client. Plaza shows and keeps everything."""

from __future__ import annotations

import csv
import io
import random
from typing import Any

import pytest
from sqlalchemy import text

from plaza.core import metrics
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.keyspace.audit import REPAIR, Audits
from plaza.live import attendance, history, keys
from plaza.live.history import AudienceHistory, ViewingSession
from plaza.live.model import MAX_GROUPS_PER_HEARTBEAT
from plaza.live.personal_data import LivePersonalData
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from plaza.live.viewing_sessions import ViewingSessions
from tests.live.conftest import AT, ViewerActions, Web

MINUTE_MS = 60_000
WINDOW_MS = 65_000


class OtherService:
    """Writes what the document describes, each key with its own command."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def beat(
        self,
        user: str,
        at: float,
        *,
        session: str = "",
        location: str = "tv",
        start: float | None = None,
        details: str = "#198.51.100.7#crew#NZ",
        event: str = "E1",
    ) -> None:
        client = self._client
        await client.zadd(keys.EVENT_HEARTBEAT(event), {user: at})
        await client.zadd(keys.EVENT_STATISTICS(event), {user + details: at})
        await client.sadd(keys.EVENT_ATTENDED(event), user)
        if session:
            await client.zadd(keys.SESSION_HEARTBEAT(session), {user: at})
            await client.zadd(keys.SESSION_STATISTICS(session), {user + details: at})
            await client.sadd(keys.SESSION_ATTENDED(session), user)
        start_key, end_key = keys.viewing_keys(event, session, location)
        if start is not None:
            await client.zadd(start_key, {user: start})
        await client.zadd(end_key, {user: at})


@pytest.fixture
def other(redis_client: Any) -> OtherService:
    return OtherService(redis_client)


async def documented(client: Any) -> dict[str, Any]:
    """Every documented key with its content."""
    found = {}
    async for name in client.scan_iter("*#*"):
        match = keys.CATALOGUE.match(name)
        if match is not None and match.key.document:
            zset = match.key.type == "zset"
            found[name] = (
                dict(await client.zrange(name, 0, -1, withscores=True)) if zset else await client.smembers(name)
            )
    return found


def recorder_of(web: Web) -> AudienceRecorder:
    return AudienceRecorder(web.core.functions, AudienceHistory(web.core.sql), web.core.settings, web.core.clock)


async def attendance_rows(web: Web) -> list[dict[str, str]]:
    response = await web.client.get(f"{AT}/attendance.csv", headers=web.admin)
    return list(csv.DictReader(io.StringIO(response.text)))


async def write_world(other: OtherService, now: int) -> None:
    """Ana and Ben watch now, Cleo left eight minutes ago."""
    ana, ben, cleo = "#198.51.100.1#press#NZ", "#198.51.100.2#crew#staff#FR", "#198.51.100.3#press#AU"
    await other.beat("ana", now - 5_000, session="S1", start=now - 10 * MINUTE_MS, details=ana)
    await other.beat("ben", now - 20_000, start=now - 2 * MINUTE_MS, details=ben)
    await other.beat(
        "cleo", now - 8 * MINUTE_MS, session="S1", start=now - 9 * MINUTE_MS, location="phone", details=cleo
    )


@pytest.mark.usefixtures("no_record_is_due")
async def test_a_world_written_by_another_service_is_shown_by_every_route(web: Web, other: OtherService) -> None:
    now = web.core.clock.now_ms()
    await write_world(other, now)
    await recorder_of(web).discover()
    await recorder_of(web).record()
    for path, count in {
        "/viewers/active-count": 2,
        "/viewers/count": 2,
        "/viewers/all-time-active-count": 3,
        "/viewers/total-attended-count": 3,
        "/viewers/max-concurrent-count": 2,
        "/viewers/total-login-count": 3,
        "/sessions/S1/viewers/active-count": 1,
        "/sessions/S1/viewers/total-attended-count": 2,
        "/sessions/S1/viewers/max-concurrent-count": 1,
    }.items():
        assert await web.figure(path) == {"count": count}, path
    assert await web.figure("/viewers/count", **{"from": now - 60 * MINUTE_MS}) == {"count": 3}
    assert await web.figure("/viewers/count", **{"from": now - 9 * MINUTE_MS, "to": now - 8 * MINUTE_MS}) == {
        "count": 2
    }
    statistics = await web.figure("/statistics/live")
    assert statistics["countByViewingCountry"] == {"NZ": 1, "FR": 1}
    assert statistics["countByUserGroup"] == {"press": 1, "crew": 1, "staff": 1}
    session = await web.figure("/sessions/S1/statistics/live")
    assert (session["viewerCount"], session["countByViewingCountry"]) == (1, {"NZ": 1})
    assert (await web.figure(""))["sessions"] == ["S1"]
    overview = await web.figure("/overview")
    assert (overview["active"], overview["attended"], [s["id"] for s in overview["sessions"]]) == (2, 3, ["S1"])
    rows = await attendance_rows(web)
    shown = [(row["viewer"], row["session"], row["location"], row["left"] != "", row["minutes"]) for row in rows]
    assert sorted(shown) == [
        ("ana", "S1", "tv", False, "9.92"),
        ("ben", "", "tv", False, "1.67"),
        ("cleo", "S1", "phone", True, "1.00"),
    ]
    stats = await web.figure("/sessions/S1/viewers/viewing-stats")
    assert (stats["viewers"], stats["mean"]) == (2, pytest.approx(5.458, abs=0.01))
    report = (await web.client.post(f"{AT}/heartbeat-report", headers=web.admin)).json()["viewers"]
    assert [(viewer["user_id"], viewer["location"]) for viewer in report] == [("ben", "tv"), ("ana", "tv")]


async def test_statistics_count_heartbeats_of_another_service_without_a_worker(web: Web, other: OtherService) -> None:
    await web.beat(web.user("dora"), session_id="S1", groups=["press"])
    now = web.core.clock.now_ms()
    await other.beat("ana", now, session="S1", details="#198.51.100.1#press#NZ")
    await other.beat("ben", now, session="S1", details="#198.51.100.2#FR")  # no group part at all
    await other.beat("cleo", now, session="S1", details="#198.51.100.2##unknown")
    for path in ("/statistics/live", "/sessions/S1/statistics/live"):
        statistics = await web.figure(path)
        assert statistics["viewerCount"] == 4
        assert statistics["countByViewingCountry"] == {"NZ": 1, "FR": 1, "ZZ": 2}, path
        assert statistics["countByUserGroup"] == {"press": 2}


async def test_a_heartbeat_that_another_service_removes_is_not_counted(web: Web, redis_client: Any) -> None:
    for name, groups in (("ana", ["crew"]), ("ben", ["crew"]), ("cleo", [])):
        await web.beat(web.user(name), groups=groups)
    await redis_client.zrem(keys.EVENT_HEARTBEAT("E1"), "ana")
    await redis_client.zincrby(keys.EVENT_HEARTBEAT("E1"), -WINDOW_MS, "cleo")
    statistics = await web.figure("/statistics/live")
    assert (statistics["viewerCount"], statistics["countByViewingCountry"]) == (1, {"ZZ": 1})
    assert statistics["countByUserGroup"] == {"crew": 1}


async def test_the_worker_notices_that_another_service_changed_a_country(
    viewers: ViewerActions,
    other: OtherService,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    clock: ManualClock,
) -> None:
    await viewers.beat("ana", country="FR")
    for country in ("NZ", "AU"):
        clock.advance(seconds=10)
        await other.beat("ana", clock.now_ms(), location="web", details=f"#198.51.100.1##{country}")
        await recorder.record()
        assert (await figures.breakdown.for_event("E1")).count_by_viewing_country == {country: 1}


async def test_a_member_with_thousands_of_groups_counts_in_the_first_ones(
    other: OtherService, figures: AudienceFigures, clock: ManualClock
) -> None:
    groups = [f"g{number:04}" for number in range(9_000)]
    await other.beat("ana", clock.now_ms(), details=f"#198.51.100.1#{'#'.join(groups)}#DE")
    counted = (await figures.breakdown.for_event("E1")).count_by_user_group
    assert counted == dict.fromkeys(groups[:MAX_GROUPS_PER_HEARTBEAT], 1)


@pytest.mark.usefixtures("no_record_is_due")
async def test_an_audit_repairs_additional_keys_and_changes_no_documented_one(
    web: Web, other: OtherService, redis_client: Any
) -> None:
    now = web.core.clock.now_ms()
    await web.beat(web.user("dora"), session_id="S2")
    await write_world(other, now)
    # The same viewer, with other details.
    await other.beat("dora", web.core.clock.now_ms() + 1, location="web", start=now)
    await redis_client.sadd(keys.EVENT_ATTENDED("E1"), "eli")  # attended, and no heartbeat
    await redis_client.zadd(keys.VIEWING_START("E1", "tv"), {"fay": now})  # a service may write an end at the end only
    before = await documented(redis_client)
    report = await web.plaza.get(Audits).run(REPAIR)
    assert report.clean, report.groups
    assert await documented(redis_client) == before
    assert (await web.plaza.get(Audits).run()).clean
    statistics = await web.figure("/statistics/live")
    assert (statistics["viewerCount"], statistics["countByViewingCountry"]) == (3, {"NZ": 2, "FR": 1})
    assert {row["viewer"] for row in await attendance_rows(web)} == {"ana", "ben", "cleo", "dora", "fay"}


async def test_both_services_write_for_the_same_viewers_and_nothing_is_lost(
    viewers: ViewerActions,
    other: OtherService,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    clock: ManualClock,
) -> None:
    """Forty minutes: each viewer watches `web` through Plaza and `tv` through the other service."""
    rng, started = random.Random(5), clock.now_ms()
    names = [f"viewer{i}" for i in range(8)]
    written: dict[tuple[str, str], list[list[int]]] = {(name, place): [] for name in names for place in ("web", "tv")}
    pause_until = dict.fromkeys(written, 0)
    for step in range(240):
        clock.advance(seconds=10)
        now = clock.now_ms()
        if step == 1:
            await recorder.discover()
        for (viewer, place), spans in written.items():
            if now < pause_until[viewer, place] or rng.random() < 0.4:
                continue
            continues = bool(spans) and now - spans[-1][1] <= WINDOW_MS
            if spans and not continues and now - spans[-1][1] < 2 * WINDOW_MS:
                continue  # the worker needs a turn before the other service overwrites the start
            if not continues:
                spans.append([now, now])
            spans[-1][1] = now
            if place == "web":
                await viewers.beat(viewer, country="FR")
            else:
                await other.beat(viewer, now, start=None if continues else now)
            if rng.random() < 0.05:
                pause_until[viewer, place] = now + 4 * MINUTE_MS
        if step % 3 == 0:
            await recorder.record()
        alive = {v for (v, _), spans in written.items() if spans and now - spans[-1][1] <= WINDOW_MS}
        assert await figures.alive("E1") == len(alive)
        statistics = await figures.breakdown.for_event("E1")
        assert sum(statistics.count_by_viewing_country.values()) == statistics.viewer_count == len(alive)
    for _ in range(12):
        clock.advance(seconds=60)
        await recorder.record()
    stored = [viewing async for viewing in recorder._viewing_sessions.iterate("E1")]
    found: dict[tuple[str, str], list[list[int]]] = {}
    for viewing in sorted(stored, key=lambda viewing: viewing.started_at):
        spans = found.setdefault((viewing.viewer, viewing.location), [])
        spans.append([viewing.started_at, viewing.ended_at])
    assert found == written
    totals = await figures.totals.get("E1")
    assert (totals.attended, totals.logins) == (8, sum(map(len, written.values())))
    assert all(started <= record.timestamp <= clock.now_ms() for record in await figures.breakdown.records("E1"))


async def test_a_viewing_session_of_another_service_continues_at_plaza(
    viewers: ViewerActions, other: OtherService, clock: ManualClock, redis_client: Any
) -> None:
    started = clock.now_ms()
    await other.beat("ana", started, start=started, location="web")
    clock.advance(seconds=30)
    await viewers.beat("ana")
    assert await redis_client.zscore(keys.VIEWING_START("E1", "web"), "ana") == started
    assert await redis_client.zscore(keys.VIEWING_END("E1", "web"), "ana") == started + 30_000


async def test_it_continues_also_if_plaza_has_seen_the_viewer_elsewhere(
    viewers: ViewerActions, other: OtherService, clock: ManualClock, redis_client: Any, figures: AudienceFigures
) -> None:
    await viewers.beat("ana", location="web")
    started = clock.now_ms()
    await other.beat("ana", started, start=started, location="tv")
    clock.advance(seconds=30)
    await viewers.beat("ana", location="tv")
    assert await redis_client.zscore(keys.VIEWING_START("E1", "tv"), "ana") == started
    assert (await figures.totals.get("E1")).logins == 2


async def test_a_viewing_session_that_a_viewer_ended_does_not_continue(
    viewers: ViewerActions, other: OtherService, clock: ManualClock, redis_client: Any, recorder: AudienceRecorder
) -> None:
    await viewers.beat("ana", location="tv")
    clock.advance(seconds=10)
    await viewers.leave("ana", location="tv")
    await recorder.record()  # in SQL, and no longer among those that wait for it
    clock.advance(seconds=10)
    again = clock.now_ms()
    await viewers.beat("ana", location="tv")
    assert await redis_client.zscore(keys.VIEWING_START("E1", "tv"), "ana") == again
    clock.advance(seconds=10)
    await viewers.leave("ana", location="tv")
    clock.advance(seconds=10)
    started = clock.now_ms()
    await other.beat("ana", started, start=started, location="tv")
    clock.advance(seconds=10)
    await viewers.beat("ana", location="tv")
    assert await redis_client.zscore(keys.VIEWING_START("E1", "tv"), "ana") == started, "begun after the end"


@pytest.mark.parametrize("fraction", [0.25, 0.999])
async def test_fractional_times_of_another_service_are_read_everywhere(
    viewers: ViewerActions,
    other: OtherService,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    functions: Functions,
    settings: Settings,
    clock: ManualClock,
    fraction: float,
) -> None:
    started = clock.now_ms()
    await viewers.beat("dora")
    for viewer in ("ana", "ben"):
        await other.beat(viewer, started + fraction, start=started - 1_000 + fraction, location="web")
    sessions = ViewingSessions(functions, history, settings, clock)
    lines = "".join([chunk async for chunk in attendance.csv_chunks(sessions, "E1")]).splitlines()
    assert [line.partition(",")[0] for line in lines] == ["viewer", "ana", "ben", "dora"]
    assert (await figures.breakdown.for_event("E1")).count_by_viewing_country == {"NZ": 2, "ZZ": 1}
    assert (await figures.viewing_stats("E1", "")).viewers == 3
    personal_data = LivePersonalData(functions, history, sessions)
    await recorder.record()
    place = {"session": None, "location": "web", "joined": started - 1_000, "last_heartbeat": started}
    assert (await personal_data.export("ana"))["recent_events"] == [
        {"event": "E1", "last_seen": started, "country": "NZ", "groups": ["crew"], "places": [place]}
    ]
    clock.advance(seconds=400)
    await recorder.record()
    assert [v async for v in history.viewings.iterate("E1")] == [
        ViewingSession("", "web", "ana", started - 1_000, started),
        ViewingSession("", "web", "ben", started - 1_000, started),
        ViewingSession("", "web", "dora", started, started),
    ]
    await personal_data.delete("ana")
    assert (await figures.totals.get("E1")).attended == 2


async def test_rows_that_cannot_be_read_are_skipped_and_counted(
    web: Web, other: OtherService, redis_client: Any
) -> None:
    now = web.core.clock.now_ms()
    await web.beat(web.user("dora"))
    start, end = keys.viewing_keys("E1", "", "web")
    for viewer, score in {"inf": float("inf"), "huge": 1e300, "negative": -5}.items():
        await redis_client.zadd(start, {viewer: score})
        await redis_client.zadd(end, {viewer: score})
        await redis_client.zadd(keys.EVENT_HEARTBEAT("E1"), {viewer: score})
    await other.beat("ana", now, start=now, location="web")
    before = metrics.UNREADABLE_ROWS.labels("live")._value.get()
    assert [row["viewer"] for row in await attendance_rows(web)] == ["ana", "dora"]
    assert metrics.UNREADABLE_ROWS.labels("live")._value.get() == before + 3
    for path in (
        "/overview",
        "/statistics/live",
        "/statistics",
        "/viewers/count",
        "/sessions/S1/viewers/viewing-stats",
    ):
        await web.figure(path)
    report = await web.client.post(f"{AT}/heartbeat-report", headers=web.admin)
    assert report.status_code == 200
    await recorder_of(web).record()


async def test_a_span_up_to_now_has_every_viewer_who_is_alive(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    started = clock.now_ms()
    await viewers.beat("ana", location="a")
    await viewers.beat("ana", location="b")
    clock.advance(seconds=25)
    await viewers.leave("ana", location="b")
    clock.advance(seconds=5)
    assert await figures.seen("E1", started + 20_000) == 1
    assert await figures.seen("E1", started + 20_000, clock.now_ms() - 1) == 1
    clock.advance(seconds=60)  # the window of the other place has passed
    assert await figures.seen("E1", started + 20_000) == 1, "leaving was in the span"
    assert await figures.seen("E1", started + 26_000) == 0


@pytest.mark.parametrize("session", [None, "S1"])
async def test_a_page_of_viewing_sessions_reads_no_earlier_rows(settings: Settings, session: str | None) -> None:
    sql = await Sql.open(settings)
    query = history.viewings_page("E1", session, ("S1", "web", "viewer", 5))
    statement = str(query.compile(compile_kwargs={"literal_binds": True}))
    async with sql.read() as tx:
        plan = " ".join(row[3] for row in await tx.execute(text(f"EXPLAIN QUERY PLAN {statement}")))
    await sql.close()
    if session is None:
        assert "event=? AND (session,location,viewer,started_at)>(?,?,?,?)" in plan, plan
    else:
        assert "event=? AND session=? AND (location,viewer,started_at)>(?,?,?)" in plan, plan
    assert "TEMP B-TREE" not in plan
