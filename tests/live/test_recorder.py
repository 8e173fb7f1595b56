"""Results reach SQL exactly once, even if workers are killed, and remain when the raw keys are gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory, ViewingSession
from plaza.live.last_seen_report import HeartbeatReports, ReportRequest
from plaza.live.model import EventDeclaration
from plaza.live.recorder import AudienceRecorder
from plaza.live.schedule import EventSchedule
from plaza.live.statistics import AudienceFigures
from tests.live.conftest import ViewerActions
from tests.processes import SimulatedCrash

SLOT_MS = 300_000
DAY_MS = 86_400_000


@pytest.fixture
def started(clock: ManualClock) -> int:
    """Set the clock to the start of five minutes."""
    clock.set(5_700_000 * SLOT_MS)
    return clock.now_ms()


async def all_viewings(history: AudienceHistory, event: str = "E1") -> list[ViewingSession]:
    return [viewing async for viewing in history.viewings.iterate(event)]


async def test_a_record_has_the_audience_at_the_end_of_its_five_minutes(
    viewers: ViewerActions, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock, started: int
) -> None:
    clock.set(started + SLOT_MS - 60_000)
    await viewers.beat("ana", "S1", country="NZ", groups=("dev",))
    clock.set(started + SLOT_MS - 1_000)
    await viewers.beat("ben", country="FR")
    clock.set(started + SLOT_MS + 500)
    await viewers.beat("cy", country="FR")
    clock.set(started + SLOT_MS + 600)
    await viewers.leave("ana", "S1")
    (record,) = await figures.breakdown.records("E1")
    assert (record.timestamp, record.viewer_count) == (started + SLOT_MS, 2)
    assert record.count_by_viewing_country == {"NZ": 1, "FR": 1}
    assert record.count_by_user_group == {"dev": 1}
    (of_session,) = await figures.breakdown.records("E1", "S1")
    assert (of_session.timestamp, of_session.viewer_count) == (started + SLOT_MS, 1)
    await recorder.record()
    assert await figures.breakdown.records("E1") == [record], "the same from SQL"
    assert await figures.breakdown.records("E1", "S1") == [of_session]
    assert await figures.breakdown.records("E1", "", started, started + 1) == []


async def test_a_silent_event_gets_one_last_record(
    viewers: ViewerActions,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    started: int,
    redis_client: Any,
) -> None:
    await viewers.beat("ana", "S1")
    for _ in range(8):
        clock.advance(seconds=100)
        await recorder.record()
    records = await figures.breakdown.records("E1")
    assert [(r.timestamp, r.viewer_count) for r in records] == [(started + SLOT_MS, 0)]
    assert await all_viewings(history) == [ViewingSession("S1", "web", "ana", started, started)]
    assert await redis_client.zcard(keys.LIVE_AWAKE()) == 0, "the worker has nothing left to do"
    await viewers.beat("ana", "S1")
    assert await redis_client.zrange(keys.LIVE_AWAKE(), 0, -1) == ["E1"]


async def test_a_viewing_session_is_one_row_however_it_ends(
    viewers: ViewerActions, recorder: AudienceRecorder, history: AudienceHistory, clock: ManualClock, started: int
) -> None:
    await viewers.beat("ana")
    await viewers.beat("ben", "S1")
    await viewers.beat("cy")
    clock.advance(seconds=30)
    await viewers.leave("ana")
    await viewers.beat("cy")
    clock.advance(seconds=100)
    await viewers.beat("cy")  # after a gap, the first viewing session ended at its last heartbeat
    for _ in range(3):
        await recorder.record()
    assert await all_viewings(history) == [
        ViewingSession("", "web", "ana", started, started + 30_000),
        ViewingSession("", "web", "cy", started, started + 30_000),
        ViewingSession("S1", "web", "ben", started, started),
    ]


async def test_figures_remain_after_the_raw_keys_are_purged(
    viewers: ViewerActions,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    reports: HeartbeatReports,
    clock: ManualClock,
    started: int,
    redis_client: Any,
) -> None:
    request = ReportRequest(["ana", "ben", "unknown"])
    for name in ("ana", "ben", "cy"):
        await viewers.beat(name, "S1", country="NZ")
    clock.advance(seconds=60)
    await viewers.leave("ana", "S1")
    await viewers.beat("ben", "S1")
    await _record_for(recorder, clock, minutes=15)
    before, report = await _figures(figures, started), await reports.report("E1", request)
    assert before["attended"] == 3
    seen = [(viewer.last_beat, viewer.location, viewer.session_id) for viewer in report.viewers]
    assert seen == [(started + 60_000, "web", "S1"), (started + 60_000, "web", "S1"), (None, None, None)]
    clock.advance(days=29)
    assert await recorder.purge() == 0, "not yet"
    clock.advance(days=2)
    assert await recorder.purge() == 1
    assert await _names(redis_client) == set()
    assert await _figures(figures, started) == before
    assert await reports.report("E1", request) == report
    stats = await figures.viewing_stats("E1", "S1")
    assert (stats.viewers, stats.mean, stats.median) == (3, 0.667, 1.0)


async def test_figures_remain_after_valkey_has_lost_all_keys(
    viewers: ViewerActions,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    clock: ManualClock,
    started: int,
    redis_client: Any,
) -> None:
    for name in ("ana", "ben"):
        await viewers.beat(name, "S1", country="NZ")
    await _record_for(recorder, clock, minutes=6)
    before = await _figures(figures, started)
    for name in await _names(redis_client):
        await redis_client.delete(name)
    assert await _figures(figures, started) == before
    assert (await figures.overview("E1")).sessions[0].attended == 2
    await viewers.beat("cy", "S1")
    assert (await figures.totals.get("E1")).attended == 3


async def test_an_event_that_comes_back_after_a_purge_counts_all_its_lives(
    viewers: ViewerActions, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock, started: int
) -> None:
    for name in ("ana", "ben", "cy"):
        await viewers.beat(name)
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    await recorder.purge()
    await viewers.beat("ana")
    await viewers.beat("dee")
    ever = await figures.totals.get("E1")
    assert (ever.attended, ever.peak, ever.logins) == (4, 3, 5)
    assert await figures.alive("E1") == 2
    assert await figures.seen("E1", started) == 4
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    await recorder.purge()
    ever = await figures.totals.get("E1")
    assert (ever.attended, ever.peak, ever.logins) == (4, 3, 5)


async def test_a_heartbeat_before_a_purge_stops_it(
    viewers: ViewerActions, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock, started: int
) -> None:
    await viewers.beat("ana")
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    await viewers.beat("ben")
    assert await recorder.purge() == 0
    assert (await figures.totals.get("E1")).attended == 2


@pytest.mark.parametrize("step", ["live_purge_places", "live_purge"])
async def test_a_heartbeat_during_a_purge_stops_it(
    viewers: ViewerActions,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    functions: Functions,
    clock: ManualClock,
    started: int,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    await viewers.beat("ana", "S1")
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    call = functions.run

    async def beat_before_step(command: str, *args: Any) -> Any:
        if command == step:
            monkeypatch.setattr(functions, "run", call)
            await viewers.beat("ben", "S1")
        return await call(command, *args)

    monkeypatch.setattr(functions, "run", beat_before_step)
    assert await recorder.purge() == 0
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    assert (await figures.totals.get("E1")).attended == 2
    assert (await figures.totals.get("E1", "S1")).attended == 2


async def test_an_unlisted_event_is_recorded_before_it_is_purged(
    viewers: ViewerActions,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    started: int,
    redis_client: Any,
) -> None:
    await viewers.beat("ana")
    await _record_for(recorder, clock, minutes=15)
    await redis_client.hset(keys.EVENT_INFO("E1"), "awake", 1)  # as a simulation does before it starts
    await viewers.beat("ben")
    clock.advance(days=31)
    assert await recorder.purge() == 0
    assert await recorder.record() == 1
    assert [viewing.viewer for viewing in await all_viewings(history)] == ["ana", "ben"]
    clock.advance(days=31)
    assert await recorder.purge() == 1


async def test_a_declared_event_outlives_its_raw_keys(
    viewers: ViewerActions, recorder: AudienceRecorder, clock: ManualClock, started: int
) -> None:
    await viewers.live.declare(
        "E1", EventDeclaration("Opening night", ["S1", "S2"], starts_at=started, description="Free.")
    )
    await viewers.beat("ana", "S1")
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    assert await recorder.purge() == 1
    event = await viewers.live.get_event("E1")
    assert (event.title, event.declared, event.sessions) == ("Opening night", True, ["S1", "S2"])
    assert (event.starts_at, event.description) == (started, "Free.")


async def test_an_event_that_was_declared_early_stays_in_the_list_until_it_is_over(
    viewers: ViewerActions, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock
) -> None:
    live = viewers.live
    schedule = EventSchedule(live._valkey, live, figures, clock)
    await live.declare("E1", EventDeclaration(starts_at=clock.now_ms() + 45 * DAY_MS))
    await viewers.beat("ana")
    await _record_for(recorder, clock, minutes=15)
    for days, listed in ((31, True), (40, True), (5, False)):
        clock.advance(days=days)
        await recorder.purge()
        assert not await live._valkey.call("EXISTS", keys.EVENT_HEARTBEAT("E1")), "who tried it is purged in time"
        assert bool(await schedule.list_events()) is listed


async def test_a_worker_killed_at_any_step_loses_and_duplicates_nothing(
    viewers: ViewerActions,
    figures: AudienceFigures,
    history: AudienceHistory,
    settings: Settings,
    clock: ManualClock,
    started: int,
) -> None:
    """A worker dies before its n-th step, for every n. The next one does the rest."""
    functions = viewers.live._functions
    for calls in range(1, 20):
        event, session, start = f"E{calls}", f"S{calls}", started + calls * 4 * SLOT_MS
        clock.set(start)
        await viewers.beat("ana", session, event=event)
        clock.advance(seconds=60)
        await viewers.leave("ana", session, event=event)
        await viewers.beat("ben", session, event=event)
        clock.advance(seconds=300)
        dying = AudienceRecorder(functions, history, settings, clock)
        _kill_before(dying, calls)
        with pytest.raises(SimulatedCrash):
            await _record_for(dying, clock, minutes=5)
        await _record_for(AudienceRecorder(functions, history, settings, clock), clock, minutes=5)
        assert await all_viewings(history, event) == [
            ViewingSession(session, "web", "ana", start, start + 60_000),
            ViewingSession(session, "web", "ben", start + 60_000, start + 60_000),
        ]
        assert [(r.timestamp, r.viewer_count) for r in await figures.breakdown.records(event)] == [(start + SLOT_MS, 0)]
        ever = await figures.totals.get(event)
        assert (ever.attended, ever.peak, ever.logins) == (2, 1, 2)


async def test_two_workers_at_once_write_everything_once(
    viewers: ViewerActions,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    started: int,
) -> None:
    for i in range(50):
        await viewers.beat(f"p{i}", "S1")
    clock.advance(seconds=400)
    await asyncio.gather(*(recorder.record() for _ in range(4)))
    assert len(await all_viewings(history)) == 50
    assert len(await figures.breakdown.records("E1")) == 1


async def test_many_viewers_who_end_in_the_same_millisecond_are_all_collected(
    viewers: ViewerActions,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    started: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plaza.live.recorder.BATCH_SIZE", 7)
    for i in range(30):
        await viewers.beat(f"p{i}")
    clock.advance(seconds=100)
    await recorder.record()
    assert len(await all_viewings(history)) == 30


async def _record_for(recorder: AudienceRecorder, clock: ManualClock, minutes: int) -> None:
    for _ in range(minutes):
        clock.advance(seconds=60)
        await recorder.record()


async def _figures(figures: AudienceFigures, started: int) -> dict[str, Any]:
    ever, of_session = await figures.totals.get("E1"), await figures.totals.get("E1", "S1")
    return {
        "attended": ever.attended,
        "peak": (ever.peak, ever.peak_at),
        "logins": ever.logins,
        "session": (of_session.attended, of_session.peak),
        "seen": await figures.seen("E1", started, started + 30_000),
        "seen after the first minute": await figures.seen("E1", started + 60_000, started + 600_000),
        "records": await figures.breakdown.records("E1", "", started, started + DAY_MS),
        "session records": await figures.breakdown.records("E1", "S1", started, started + DAY_MS),
        "minutes": await figures.viewing_stats("E1", "S1"),
    }


async def _names(redis_client: Any) -> set[str]:
    """Return the names of all keys, without marks of ended viewing sessions, which expire by Valkey's clock."""
    own = ("plaza:", "events:", "published:")
    names = {name async for name in redis_client.scan_iter() if not name.startswith(own)}
    return {name for name in names if "#Event#Ended#" not in name}


def _kill_before(recorder: AudienceRecorder, calls: int) -> None:
    """Count every step of a worker in Valkey and in SQL; from the n-th on, raise an error."""
    left = [calls]

    def counted(step: Any) -> Any:
        async def run(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise SimulatedCrash
            return await step(*args, **more)

        return run

    class Dying:
        def __init__(self, real: Any, names: set[str]) -> None:
            self._real = real
            self._names = names

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._real, name)
            return counted(found) if name in self._names else found

    recorder._functions = Dying(recorder._functions, {"run"})  # type: ignore[assignment]
    recorder._valkey = Dying(recorder._valkey, {"call"})  # type: ignore[assignment]
    history: Any = Dying(recorder._history, {"save_records", "save_totals"})
    history.viewings = Dying(recorder._history.viewings, {"save"})
    recorder._history = history
