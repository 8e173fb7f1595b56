"""Every count, at every step, equals that of a model that keeps all heartbeats in lists and counts them one by one.

A viewer of an event or a session is alive if they sent a heartbeat there within the window and have not left their last
place there. The model knows nothing of keys, scores or slots.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from plaza.core.clock import ManualClock
from plaza.live import keys
from plaza.live.model import AudienceStatistics
from plaza.live.recorder import AudienceRecorder
from plaza.live.statistics import AudienceFigures
from tests.live.conftest import ViewerActions

WINDOW_MS = 65_000
SLOT_MS = 300_000
Place = tuple[str, str]  # session ("" for none), location


@dataclass
class ModelViewing:
    start: int
    end: int
    left: bool = False


@dataclass
class AudienceModel:
    """The audience of one event, by brute force."""

    viewings: dict[str, dict[Place, list[ModelViewing]]] = field(default_factory=dict)
    details: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # (session, user)
    seen: dict[tuple[str, str], int] = field(default_factory=dict)  # last beat of those who have not left
    peaks: Counter[str] = field(default_factory=Counter)
    records: list[AudienceStatistics] = field(default_factory=list)
    last: int | None = None  # heartbeat, in five minutes that are not recorded yet

    def beat(self, user: str, place: Place, at: int, country: str, groups: tuple[str, ...]) -> None:
        self.record(at)
        self.last = at
        viewings = self.viewings.setdefault(user, {}).setdefault(place, [])
        if not viewings or viewings[-1].left or at - viewings[-1].end > WINDOW_MS:
            viewings.append(ModelViewing(at, at))
        viewings[-1].end = at
        for scope in {"", place[0]}:
            self.details[scope, user] = (country, groups)
            self.seen[scope, user] = at
            self.peaks[scope] = max(self.peaks[scope], len(self.alive(scope, at)))

    def leave(self, user: str, place: Place, at: int) -> None:
        viewings = self.viewings.get(user, {}).get(place, [])
        if not viewings or viewings[-1].left:
            return
        self.record(at)
        viewings[-1].left = True
        if at - viewings[-1].end <= WINDOW_MS:
            viewings[-1].end = at
        for scope in {"", place[0]}:
            if not self.watches(user, scope, at):
                self.seen.pop((scope, user), None)

    def watches(self, user: str, session: str, at: int) -> bool:
        return any(
            session in ("", place[0]) and not viewings[-1].left and at - viewings[-1].end <= WINDOW_MS
            for place, viewings in self.viewings[user].items()
        )

    def alive(self, session: str, at: int) -> set[str]:
        return {user for (scope, user), seen in self.seen.items() if scope == session and at - seen <= WINDOW_MS}

    def record(self, at: int) -> None:
        """Before a change, record the end of the five minutes with the last heartbeat."""
        if self.last is not None and at // SLOT_MS > self.last // SLOT_MS:
            self.records.append(self.statistics("", (self.last // SLOT_MS + 1) * SLOT_MS))
            self.last = None

    def seen_since(self, since: int, now: int) -> int:
        """Viewers who beat or left since a time, and all who are alive now."""
        active = {
            user for user, places in self.viewings.items() if any(v.end >= since for p in places.values() for v in p)
        }
        return len(active | self.alive("", now))

    def seen_between(self, from_ms: int, to_ms: int) -> int:
        return sum(
            any(v.start <= to_ms and v.end >= from_ms for viewings in places.values() for v in viewings)
            for places in self.viewings.values()
        )

    def logins(self) -> int:
        return sum(len(viewings) for places in self.viewings.values() for viewings in places.values())

    def statistics(self, session: str, at: int) -> AudienceStatistics:
        alive = self.alive(session, at)
        countries = Counter(self.details[session, user][0] for user in alive)
        groups = Counter(group for user in alive for group in self.details[session, user][1])
        return AudienceStatistics(len(alive), at, dict(groups), dict(countries))


SESSIONS = ("", "S1", "S2")
# Often at an edge of the window, to find errors of one millisecond.
WINDOW_EDGES = (0, 1, 500, 5_000, 30_000, 64_999, 65_000, 65_001)
# Short steps, so that viewers often watch at several places at once.
SHORT_STEPS = (0, 1, 100, 3_000, 10_000, 65_000)


@pytest.mark.parametrize(
    ("seed", "viewer_count", "steps"), [(1, 12, WINDOW_EDGES), (2, 12, WINDOW_EDGES), (3, 3, SHORT_STEPS)]
)
async def test_counts_and_peaks_equal_those_of_a_brute_force_model(
    viewers: ViewerActions,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    clock: ManualClock,
    redis_client: Any,
    seed: int,
    viewer_count: int,
    steps: tuple[int, ...],
) -> None:
    rng, model, started = random.Random(seed), AudienceModel(), clock.now_ms()
    names = [f"p{i}" for i in range(viewer_count)]
    for _ in range(250):
        clock.set(clock.now_ms() + rng.choice(steps))
        if rng.random() < 0.05:
            await recorder.record()  # a worker changes no figure
        at, user = clock.now_ms(), rng.choice(names)
        place = (rng.choice(SESSIONS), rng.choice(("web", "phone")))
        if rng.random() < 0.3:
            model.leave(user, place, at)
            await viewers.leave(user, place[0] or None, location=place[1])
        else:
            country, groups = (
                rng.choice(("NZ", "FR", "ZZ", "AA")),
                tuple(rng.sample(["a", "b", "c"], rng.randrange(3))),
            )
            model.beat(user, place, at, country, groups)
            result = await viewers.beat(user, place[0] or None, location=place[1], country=country, groups=groups)
            assert result.alive == len(model.alive("", at))
        later = at + rng.choice((0, 1, 64_999, 65_000, 65_001))
        clock.set(later)
        assert await figures.breakdown.for_event("E1") == model.statistics("", later)
        assert await figures.breakdown.for_session("S1") == model.statistics("S1", later)
        assert await figures.alive("E1") == len(model.alive("", later))
        assert await figures.session_alive("S2") == len(model.alive("S2", later))
        since = later - rng.choice((0, 1, 65_000, 245_000, 245_001, 300_000))
        assert await figures.seen("E1", since) == model.seen_since(since, later)
    assert int(await redis_client.hget(keys.EVENT_INFO("E1"), "peak")) == model.peaks[""]
    assert int(await redis_client.hget(keys.SESSION_INFO("S1"), "peak")) == model.peaks["S1"]
    assert int(await redis_client.hget(keys.EVENT_INFO("E1"), "logins")) == model.logins()
    assert await redis_client.smembers(keys.EVENT_ATTENDED("E1")) == set(model.viewings)
    clock.advance(seconds=300)
    await recorder.record()
    model.record(clock.now_ms())
    assert await figures.breakdown.records("E1", "", started, clock.now_ms()) == model.records
    assert len(model.records) > 3
    for _ in range(5):
        span = sorted(rng.randint(started, clock.now_ms() - 1) for _ in range(2))
        assert await figures.seen("E1", *span) == model.seen_between(*span)


async def test_the_peak_is_right_although_heartbeats_arrive_out_of_order(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    started = clock.now_ms()
    for n in (3, 2, 0, 39, *range(4, 39), 1):
        clock.set(started + n)
        await viewers.beat(f"p{n}", "S1")
    ever, of_session = await figures.totals.get("E1"), await figures.totals.get("E1", "S1")
    assert (ever.peak, ever.peak_at, of_session.peak) == (40, started + 39, 40)


async def test_a_late_heartbeat_never_raises_the_peak_too_high(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    started = clock.now_ms()
    for name, offset in (("ana", 0), ("ben", WINDOW_MS + 1), ("late", WINDOW_MS)):
        clock.set(started + offset)
        await viewers.beat(name)
    assert (await figures.totals.get("E1")).peak == 2, "ana was gone when ben came"


async def test_records_continue_after_a_clock_that_jumped_ahead_is_corrected(
    viewers: ViewerActions, figures: AudienceFigures, clock: ManualClock
) -> None:
    started = clock.now_ms() // SLOT_MS * SLOT_MS
    for offset in (0, 12 * SLOT_MS, 1_000, SLOT_MS + 1_000, 2 * SLOT_MS):
        clock.set(started + offset)
        await viewers.beat(f"p{offset}")
    records = await figures.breakdown.records("E1", "", started, started + 20 * SLOT_MS)
    assert [record.timestamp for record in records] == [started + SLOT_MS, started + 2 * SLOT_MS]
