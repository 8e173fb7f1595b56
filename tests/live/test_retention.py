"""Retention and comparison equal those of a model that looks at every viewer at every minute."""

from __future__ import annotations

import random
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.history import AudienceHistory, ViewingSession
from plaza.live.recorder import AudienceRecorder
from plaza.live.retention import MAX_COMPARED_EVENTS, Retention, RetentionCurve, WatchTimes
from plaza.live.statistics import AudienceFigures
from plaza.live.viewing_sessions import ViewingSessions
from tests.live.conftest import AT, ViewerActions, Web

MINUTE_MS = 60_000


@pytest.fixture
def retention(
    functions: Functions, history: AudienceHistory, settings: Settings, clock: ManualClock, figures: AudienceFigures
) -> Retention:
    return Retention(ViewingSessions(functions, history, settings, clock), figures.totals, clock)


def model_of(viewings: list[ViewingSession], now: int, last_minute: int) -> list[tuple[int, int, int, int, int]]:
    """Minute, observed, watching, dropped and rejoined, by brute force."""
    by_viewer: dict[str, list[tuple[int, int, bool]]] = {}
    for viewing in viewings:
        end = now if viewing.under_way else viewing.ended_at
        by_viewer.setdefault(viewing.viewer, []).append((viewing.started_at, end, viewing.under_way))
    rows = []
    for minute in range(last_minute + 1):
        observed = watching = dropped = rejoined = 0
        for spans in by_viewer.values():
            first, gone, goes_on = (min(s[0] for s in spans), max(s[1] for s in spans), any(s[2] for s in spans))
            at = first + minute * MINUTE_MS
            observed += not goes_on or now >= at
            watching += any(start <= at <= end for start, end, _ in spans)
            dropped += not goes_on and at <= gone < at + MINUTE_MS
            starts = {start for start, _, _ in spans if at <= start < at + MINUTE_MS and start > first}
            rejoined += sum(not any(s < start <= e for s, e, _ in spans) for start in starts)
        rows.append((minute, observed, watching, dropped, rejoined))
    return rows


def rows_of(curve: RetentionCurve) -> list[tuple[int, int, int, int, int]]:
    return [(each.minute, each.observed, each.watching, each.dropped, each.rejoined) for each in curve.minutes]


@pytest.mark.parametrize("seed", range(4))
async def test_a_curve_equals_that_of_a_brute_force_model(seed: int) -> None:
    rng, now = random.Random(seed), 10_000 * MINUTE_MS
    viewings = []
    for n in range(60):
        at = now - rng.randrange(40 * MINUTE_MS)
        for location in rng.sample(["web", "tv", "phone"], rng.randint(1, 3)):
            start = at + rng.choice((0, 1, MINUTE_MS, rng.randrange(10 * MINUTE_MS)))
            end = start + rng.choice((0, MINUTE_MS, 2 * MINUTE_MS - 1, rng.randrange(20 * MINUTE_MS)))
            if start < now:
                viewings.append(ViewingSession("", location, f"p{n}", start, min(end, now), end >= now))
    times = WatchTimes(now)
    for viewing in viewings:
        times.add(viewing)
    curve = await times.curve(25)
    assert rows_of(curve) == model_of(viewings, now, 25)
    assert curve.minutes[0].share == 1.0
    assert curve.viewers == len({viewing.viewer for viewing in viewings})


async def watch(viewers: ViewerActions, clock: ManualClock, name: str, session: str | None, minutes: int) -> None:
    """Watch for some minutes, then leave."""
    for _ in range(minutes):
        await viewers.beat(name, session)
        clock.advance(seconds=60)
    await viewers.leave(name, session)


async def test_figures_stay_the_same_when_the_raw_keys_are_purged(
    viewers: ViewerActions,
    recorder: AudienceRecorder,
    retention: Retention,
    settings: Settings,
    clock: ManualClock,
    redis_client: Any,
) -> None:
    await watch(viewers, clock, "ana", "S1", 6)
    await watch(viewers, clock, "ben", "S1", 2)
    await watch(viewers, clock, "ben", "S1", 1)
    await watch(viewers, clock, "cleo", "S2", 16)
    curve = await retention.curve("E1", None, 20)
    assert [each.watching for each in curve.minutes[:8]] == [3, 3, 3, 3, 2, 2, 2, 1]
    assert (curve.viewers, curve.rejoined_viewers) == (3, 0), "ben came back at once"
    assert [each.minute for each in curve.minutes if each.dropped] == [3, 6, 16]
    of_session = await retention.curve("E1", "S1", 20)
    compared, events = await retention.compare_sessions("E1"), await retention.compare_events(["E1", "other"])
    assert [(each.id, each.attended, each.retention["5"]) for each in compared.sessions] == [
        ("S1", 2, 0.5),
        ("S2", 1, 1.0),
    ]
    assert [(each.id, each.attended, each.logins, each.max_concurrent) for each in events.events] == [
        ("E1", 3, 4, 1),
        ("other", 0, 0, 0),
    ]
    report = await retention.report("E1", "S1", 20)
    assert (report.curve, report.sessions, report.event) == (of_session, compared.sessions, events.events[0])
    assert events.events[0].minutes.mean == pytest.approx((6 + 3 + 16) / 3, abs=0.01)
    clock.advance(seconds=400)
    await recorder.record()
    clock.advance(seconds=(settings.live_retention_days + 1) * 86_400)
    assert await recorder.purge() == 1
    assert await redis_client.exists(keys.EVENT_HEARTBEAT("E1")) == 0
    assert await retention.curve("E1", None, 20) == curve
    assert await retention.curve("E1", "S1", 20) == of_session
    assert await retention.compare_sessions("E1") == compared
    assert await retention.compare_events(["E1", "other"]) == events


async def test_a_viewer_who_goes_on_is_not_counted_beyond_now(
    viewers: ViewerActions, retention: Retention, clock: ManualClock
) -> None:
    await watch(viewers, clock, "ana", None, 5)
    await viewers.beat("ben")
    clock.advance(seconds=60)
    await viewers.beat("ben")
    curve = await retention.curve("E1", None, 3)
    assert [(each.observed, each.share) for each in curve.minutes] == [(2, 1.0), (2, 1.0), (1, 1.0), (1, 1.0)]
    await viewers.beat("ben", "S1")
    (compared,) = (await retention.compare_sessions("E1")).sessions
    assert compared.retention["5"] is None, "no viewer has been there for five minutes"


async def test_the_routes_are_for_admins_and_bounded(web: Web) -> None:
    await web.beat(web.user("ana"), session_id="S1")
    curve = await web.figure("/retention", minutes=2)
    assert (curve["viewers"], [each["minute"] for each in curve["minutes"]]) == (1, [0, 1, 2])
    assert (await web.figure("/sessions/S1/retention"))["viewers"] == 1
    assert [row["id"] for row in (await web.figure("/comparison"))["sessions"]] == ["S1"]
    path = "/analytics/comparison"
    found = await web.client.get(path, params={"events": "E1,E2"}, headers=web.admin)
    assert [row["id"] for row in found.json()["events"]] == ["E1", "E2"]
    many = ",".join(f"E{n}" for n in range(MAX_COMPARED_EVENTS + 1))
    assert (await web.client.get(path, params={"events": many}, headers=web.admin)).status_code == 422
    assert (await web.client.get(f"{AT}/retention", params={"minutes": 0}, headers=web.admin)).status_code == 422
    for denied in (f"{AT}/retention", f"{AT}/sessions/S1/retention", f"{AT}/comparison", f"{path}?events=E1"):
        assert (await web.client.get(denied, headers=web.user("ana"))).status_code == 403
