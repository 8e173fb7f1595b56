"""What audiences did reaches SQL exactly once, whoever is killed, and figures answer when the raw keys are gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory, ViewingSession
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from plaza.live.viewer_report import HeartbeatReports, ReportRequest
from tests.live.conftest import Crowd

SLOT_MS = 300_000
DAY_MS = 86_400_000


@pytest.fixture
def begun(clock: ManualClock) -> int:
    """The start of five minutes."""
    clock.set(5_700_000 * SLOT_MS)
    return clock.now_ms()


async def all_viewings(history: AudienceHistory, event: str = "E1") -> list[ViewingSession]:
    return [viewing async for viewing in history.iterate_viewing_sessions(event)]


async def test_the_record_of_five_minutes_is_what_was_true_at_their_end(
    crowd: Crowd, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock, begun: int
) -> None:
    clock.set(begun + SLOT_MS - 60_000)
    await crowd.beat("ana", "S1", country="NZ", groups=("dev",))
    clock.set(begun + SLOT_MS - 1_000)
    await crowd.beat("ben", country="FR")
    clock.set(begun + SLOT_MS + 500)
    await crowd.beat("cy", country="FR")
    clock.set(begun + SLOT_MS + 600)
    await crowd.leave("ana", "S1")
    (record,) = await figures.records("E1")
    assert (record.timestamp, record.viewer_count) == (begun + SLOT_MS, 2)
    assert record.count_by_viewing_country == {"NZ": 1, "FR": 1}
    assert record.count_by_user_group == {"dev": 1}
    (of_session,) = await figures.records("E1", "S1")
    assert (of_session.timestamp, of_session.viewer_count) == (begun + SLOT_MS, 1)
    await recorder.record()
    assert await figures.records("E1") == [record], "and it is the same from SQL"
    assert await figures.records("E1", "S1") == [of_session]
    assert await figures.records("E1", "", begun, begun + 1) == []


async def test_an_event_that_falls_silent_gets_its_last_record_and_then_none(
    crowd: Crowd,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    begun: int,
    redis_client: Any,
) -> None:
    await crowd.beat("ana", "S1")
    for _ in range(8):
        clock.advance(seconds=100)
        await recorder.record()
    records = await figures.records("E1")
    assert [(r.timestamp, r.viewer_count) for r in records] == [(begun + SLOT_MS, 0)]
    assert await all_viewings(history) == [ViewingSession("S1", "web", "ana", begun, begun)]
    assert await redis_client.zcard(keys.LIVE_AWAKE()) == 0, "nothing is left to do for it"
    await crowd.beat("ana", "S1")
    assert await redis_client.zrange(keys.LIVE_AWAKE(), 0, -1) == ["E1"]


async def test_a_viewing_session_is_one_row_whether_it_ends_by_leaving_silence_or_coming_back(
    crowd: Crowd, recorder: AudienceRecorder, history: AudienceHistory, clock: ManualClock, begun: int
) -> None:
    await crowd.beat("ana")
    await crowd.beat("ben", "S1")
    await crowd.beat("cy")
    clock.advance(seconds=30)
    await crowd.leave("ana")
    await crowd.beat("cy")
    clock.advance(seconds=100)
    await crowd.beat("cy")  # after a gap: the first ended when it was last seen
    for _ in range(3):
        await recorder.record()
    assert await all_viewings(history) == [
        ViewingSession("", "web", "ana", begun, begun + 30_000),
        ViewingSession("", "web", "cy", begun, begun + 30_000),
        ViewingSession("S1", "web", "ben", begun, begun),
    ]


async def test_figures_answer_after_the_raw_keys_are_purged(
    crowd: Crowd,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    reports: HeartbeatReports,
    clock: ManualClock,
    begun: int,
    redis_client: Any,
) -> None:
    asked = ReportRequest(["ana", "ben", "nobody"])
    for name in ("ana", "ben", "cy"):
        await crowd.beat(name, "S1", country="NZ")
    clock.advance(seconds=60)
    await crowd.leave("ana", "S1")
    await crowd.beat("ben", "S1")
    await _record_for(recorder, clock, minutes=15)
    before, report = await _figures(figures, begun), await reports.report("E1", asked)
    assert before["attended"] == 3
    seen = [(viewer.last_beat, viewer.location, viewer.session_id) for viewer in report.viewers]
    assert seen == [(begun + 60_000, "web", "S1"), (begun + 60_000, "web", "S1"), (None, None, None)]
    clock.advance(days=29)
    assert await recorder.purge() == 0, "not yet"
    clock.advance(days=2)
    assert await recorder.purge() == 1
    assert await _names(redis_client) == set()
    assert await _figures(figures, begun) == before
    assert await reports.report("E1", asked) == report
    stats = await figures.viewing_stats("E1", "S1")
    assert (stats.viewers, stats.mean, stats.median) == (3, 0.667, 1.0)


async def test_figures_answer_after_valkey_has_lost_everything(
    crowd: Crowd,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    clock: ManualClock,
    begun: int,
    redis_client: Any,
) -> None:
    for name in ("ana", "ben"):
        await crowd.beat(name, "S1", country="NZ")
    await _record_for(recorder, clock, minutes=6)
    before = await _figures(figures, begun)
    for name in await _names(redis_client):
        await redis_client.delete(name)
    assert await _figures(figures, begun) == before
    assert (await figures.overview("E1")).sessions[0].attended == 2
    await crowd.beat("cy", "S1")
    assert (await figures.totals("E1")).attended == 3


async def test_an_event_that_comes_back_after_a_purge_counts_all_its_lives(
    crowd: Crowd, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock, begun: int
) -> None:
    for name in ("ana", "ben", "cy"):
        await crowd.beat(name)
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    await recorder.purge()
    await crowd.beat("ana")
    await crowd.beat("dee")
    ever = await figures.totals("E1")
    assert (ever.attended, ever.peak, ever.logins) == (4, 3, 5)
    assert await figures.alive("E1") == 2
    assert await figures.seen("E1", begun) == 4
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    await recorder.purge()
    ever = await figures.totals("E1")
    assert (ever.attended, ever.peak, ever.logins) == (4, 3, 5)


async def test_a_beat_before_a_purge_stops_it(
    crowd: Crowd, figures: AudienceFigures, recorder: AudienceRecorder, clock: ManualClock, begun: int
) -> None:
    await crowd.beat("ana")
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    await crowd.beat("ben")
    assert await recorder.purge() == 0
    assert (await figures.totals("E1")).attended == 2


@pytest.mark.parametrize("step", ["live_purge_places", "live_purge"])
async def test_a_beat_in_the_middle_of_a_purge_stops_it(
    crowd: Crowd,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    functions: Functions,
    clock: ManualClock,
    begun: int,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    await crowd.beat("ana", "S1")
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    call = functions.run

    async def beaten(verb: str, *args: Any) -> Any:
        if verb == step:
            monkeypatch.setattr(functions, "run", call)
            await crowd.beat("ben", "S1")
        return await call(verb, *args)

    monkeypatch.setattr(functions, "run", beaten)
    assert await recorder.purge() == 0
    assert (await figures.alive("E1"), await figures.session_alive("S1")) == (1, 1)
    assert (await figures.totals("E1")).attended == 2
    assert (await figures.totals("E1", "S1")).attended == 2


async def test_what_nobody_listed_is_recorded_before_it_is_purged(
    crowd: Crowd,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    begun: int,
    redis_client: Any,
) -> None:
    await crowd.beat("ana")
    await _record_for(recorder, clock, minutes=15)
    await redis_client.hset(keys.EVENT_INFO("E1"), "awake", 1)  # as a simulation does before it begins
    await crowd.beat("ben")
    clock.advance(days=31)
    assert await recorder.purge() == 0
    assert await recorder.record() == 1
    assert [viewing.viewer for viewing in await all_viewings(history)] == ["ana", "ben"]
    clock.advance(days=31)
    assert await recorder.purge() == 1


async def test_a_declared_event_outlives_its_raw_keys(
    crowd: Crowd, recorder: AudienceRecorder, clock: ManualClock, begun: int
) -> None:
    from plaza.live.model import EventDeclaration

    await crowd.live.declare("E1", EventDeclaration(title="Opening night", sessions=["S1", "S2"]))
    await crowd.beat("ana", "S1")
    await _record_for(recorder, clock, minutes=15)
    clock.advance(days=31)
    assert await recorder.purge() == 1
    event = await crowd.live.get_event("E1")
    assert (event.title, event.declared, event.sessions) == ("Opening night", True, ["S1", "S2"])


class Killed(Exception):
    pass


async def test_a_worker_killed_at_any_step_neither_loses_nor_doubles(
    crowd: Crowd, figures: AudienceFigures, history: AudienceHistory, settings: Settings, clock: ManualClock, begun: int
) -> None:
    """A worker dies before its n-th step, for every n; the next one finds the rest."""
    functions = crowd.live._functions
    for calls in range(1, 20):
        event, session, start = f"E{calls}", f"S{calls}", begun + calls * 4 * SLOT_MS
        clock.set(start)
        await crowd.beat("ana", session, event=event)
        clock.advance(seconds=60)
        await crowd.leave("ana", session, event=event)
        await crowd.beat("ben", session, event=event)
        clock.advance(seconds=300)
        dying = AudienceRecorder(functions, history, settings, clock)
        _kill_before(dying, calls)
        with pytest.raises(Killed):
            await _record_for(dying, clock, minutes=5)
        await _record_for(AudienceRecorder(functions, history, settings, clock), clock, minutes=5)
        assert await all_viewings(history, event) == [
            ViewingSession(session, "web", "ana", start, start + 60_000),
            ViewingSession(session, "web", "ben", start + 60_000, start + 60_000),
        ]
        assert [(r.timestamp, r.viewer_count) for r in await figures.records(event)] == [(start + SLOT_MS, 0)]
        ever = await figures.totals(event)
        assert (ever.attended, ever.peak, ever.logins) == (2, 1, 2)


async def test_two_workers_at_once_write_everything_once(
    crowd: Crowd,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    begun: int,
) -> None:
    for i in range(50):
        await crowd.beat(f"p{i}", "S1")
    clock.advance(seconds=400)
    await asyncio.gather(*(recorder.record() for _ in range(4)))
    assert len(await all_viewings(history)) == 50
    assert len(await figures.records("E1")) == 1


async def test_many_viewers_who_end_in_the_same_millisecond_are_all_collected(
    crowd: Crowd,
    recorder: AudienceRecorder,
    history: AudienceHistory,
    clock: ManualClock,
    begun: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("plaza.live.recorder.BATCH_SIZE", 7)
    for i in range(30):
        await crowd.beat(f"p{i}")
    clock.advance(seconds=100)
    await recorder.record()
    assert len(await all_viewings(history)) == 30


async def _record_for(recorder: AudienceRecorder, clock: ManualClock, minutes: int) -> None:
    for _ in range(minutes):
        clock.advance(seconds=60)
        await recorder.record()


async def _figures(figures: AudienceFigures, begun: int) -> dict[str, Any]:
    ever, of_session = await figures.totals("E1"), await figures.totals("E1", "S1")
    return {
        "attended": ever.attended,
        "peak": (ever.peak, ever.peak_at),
        "logins": ever.logins,
        "session": (of_session.attended, of_session.peak),
        "seen": await figures.seen("E1", begun, begun + 30_000),
        "seen after the first minute": await figures.seen("E1", begun + 60_000, begun + 600_000),
        "records": await figures.records("E1", "", begun, begun + DAY_MS),
        "session records": await figures.records("E1", "S1", begun, begun + DAY_MS),
        "minutes": await figures.viewing_stats("E1", "S1"),
    }


async def _names(redis_client: Any) -> set[str]:
    return {name async for name in redis_client.scan_iter() if not name.startswith("plaza:")}


def _kill_before(recorder: AudienceRecorder, calls: int) -> None:
    """Every step of a worker, in Valkey and in SQL, counts; from the n-th on nothing happens any more."""
    left = [calls]

    def counted(step: Any) -> Any:
        async def run(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise Killed
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
    recorder._history = Dying(recorder._history, {"save_viewing_sessions", "save_records", "save_totals"})  # type: ignore[assignment]
