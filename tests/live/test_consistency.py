"""Every count, at every step, equals that of a model that keeps all beats in lists and counts them one by one.

Alive in an event or a session is who beat there within the window and has not left the last place they were watching
there. The model knows nothing of keys, scores or slots.
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
from tests.live.conftest import Crowd

WINDOW_MS = 65_000
SLOT_MS = 300_000
Place = tuple[str, str]  # session ("" for none), location


@dataclass
class ViewingSession:
    start: int
    end: int
    left: bool = False


@dataclass
class Model:
    """The audience of one event, by brute force."""

    viewings: dict[str, dict[Place, list[ViewingSession]]] = field(default_factory=dict)
    said: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # (session, user)
    seen: dict[tuple[str, str], int] = field(default_factory=dict)  # last beat of those who have not left
    peaks: Counter[str] = field(default_factory=Counter)
    records: list[AudienceStatistics] = field(default_factory=list)
    last: int | None = None  # beat, in five minutes that are not recorded yet

    def beat(self, user: str, place: Place, at: int, country: str, groups: tuple[str, ...]) -> None:
        self.record(at)
        self.last = at
        there = self.viewings.setdefault(user, {}).setdefault(place, [])
        if not there or there[-1].left or at - there[-1].end > WINDOW_MS:
            there.append(ViewingSession(at, at))
        there[-1].end = at
        for scope in {"", place[0]}:
            self.said[scope, user] = (country, groups)
            self.seen[scope, user] = at
            self.peaks[scope] = max(self.peaks[scope], len(self.alive(scope, at)))

    def leave(self, user: str, place: Place, at: int) -> None:
        there = self.viewings.get(user, {}).get(place, [])
        if not there or there[-1].left:
            return
        self.record(at)
        there[-1].left = True
        if at - there[-1].end <= WINDOW_MS:
            there[-1].end = at
        for scope in {"", place[0]}:
            if not self.watches(user, scope, at):
                self.seen.pop((scope, user), None)

    def watches(self, user: str, session: str, at: int) -> bool:
        return any(
            session in ("", place[0]) and not there[-1].left and at - there[-1].end <= WINDOW_MS
            for place, there in self.viewings[user].items()
        )

    def alive(self, session: str, at: int) -> set[str]:
        return {user for (scope, user), seen in self.seen.items() if scope == session and at - seen <= WINDOW_MS}

    def record(self, at: int) -> None:
        """Before anything changes: what was true at the end of the five minutes in which somebody last beat."""
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
            any(v.start <= to_ms and v.end >= from_ms for there in places.values() for v in there)
            for places in self.viewings.values()
        )

    def logins(self) -> int:
        return sum(len(there) for places in self.viewings.values() for there in places.values())

    def statistics(self, session: str, at: int) -> AudienceStatistics:
        alive = self.alive(session, at)
        countries = Counter(self.said[session, user][0] for user in alive)
        groups = Counter(group for user in alive for group in self.said[session, user][1])
        return AudienceStatistics(len(alive), at, dict(groups), dict(countries))


SESSIONS = ("", "S1", "S2")
# Often just at an edge of the window, so that one millisecond too many or too few shows.
EDGES = (0, 1, 500, 5_000, 30_000, 64_999, 65_000, 65_001)
# So many moments that everyone is often watching at several places at once.
CLOSE = (0, 1, 100, 3_000, 10_000, 65_000)


@pytest.mark.parametrize(("seed", "crowded", "steps"), [(1, 12, EDGES), (2, 12, EDGES), (3, 3, CLOSE)])
async def test_counts_and_peaks_are_those_of_a_brute_force_model(
    crowd: Crowd,
    figures: AudienceFigures,
    recorder: AudienceRecorder,
    clock: ManualClock,
    redis_client: Any,
    seed: int,
    crowded: int,
    steps: tuple[int, ...],
) -> None:
    dice, model, begun = random.Random(seed), Model(), clock.now_ms()
    people = [f"p{i}" for i in range(crowded)]
    for _ in range(250):
        clock.set(clock.now_ms() + dice.choice(steps))
        if dice.random() < 0.05:
            await recorder.record()  # a worker that comes by changes nothing
        at, user = clock.now_ms(), dice.choice(people)
        place = (dice.choice(SESSIONS), dice.choice(("web", "phone")))
        if dice.random() < 0.3:
            model.leave(user, place, at)
            await crowd.leave(user, place[0] or None, location=place[1])
        else:
            country, groups = (
                dice.choice(("NZ", "FR", "ZZ", "AA")),
                tuple(dice.sample(["a", "b", "c"], dice.randrange(3))),
            )
            model.beat(user, place, at, country, groups)
            heard = await crowd.beat(user, place[0] or None, location=place[1], country=country, groups=groups)
            assert heard.alive == len(model.alive("", at))
        later = at + dice.choice((0, 1, 64_999, 65_000, 65_001))
        clock.set(later)
        assert await figures.statistics("E1") == model.statistics("", later)
        assert await figures.session_statistics("S1") == model.statistics("S1", later)
        assert await figures.alive("E1") == len(model.alive("", later))
        assert await figures.session_alive("S2") == len(model.alive("S2", later))
        since = later - dice.choice((0, 1, 65_000, 245_000, 245_001, 300_000))
        assert await figures.seen("E1", since) == model.seen_since(since, later)
    assert int(await redis_client.hget(keys.EVENT_INFO("E1"), "peak")) == model.peaks[""]
    assert int(await redis_client.hget(keys.SESSION_INFO("S1"), "peak")) == model.peaks["S1"]
    assert int(await redis_client.hget(keys.EVENT_INFO("E1"), "logins")) == model.logins()
    assert await redis_client.smembers(keys.EVENT_ATTENDED("E1")) == set(model.viewings)
    clock.advance(seconds=300)
    await recorder.record()
    model.record(clock.now_ms())
    assert await figures.records("E1", "", begun, clock.now_ms()) == model.records
    assert len(model.records) > 3
    for _ in range(5):
        span = sorted(dice.randint(begun, clock.now_ms() - 1) for _ in range(2))
        assert await figures.seen("E1", *span) == model.seen_between(*span)


async def test_the_peak_is_the_true_one_though_beats_of_several_processes_overtake_each_other(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock
) -> None:
    begun = clock.now_ms()
    for n in (3, 2, 0, 39, *range(4, 39), 1):
        clock.set(begun + n)
        await crowd.beat(f"p{n}", "S1")
    ever, of_session = await figures.totals("E1"), await figures.totals("E1", "S1")
    assert (ever.peak, ever.peak_at, of_session.peak) == (40, begun + 39, 40)


async def test_a_late_beat_never_makes_the_peak_higher_than_it_was(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock
) -> None:
    begun = clock.now_ms()
    for name, offset in (("ana", 0), ("ben", WINDOW_MS + 1), ("late", WINDOW_MS)):
        clock.set(begun + offset)
        await crowd.beat(name)
    assert (await figures.totals("E1")).peak == 2, "ana had gone when ben came"


async def test_a_clock_that_jumped_ahead_and_was_put_right_does_not_end_the_records(
    crowd: Crowd, figures: AudienceFigures, clock: ManualClock
) -> None:
    begun = clock.now_ms() // SLOT_MS * SLOT_MS
    for offset in (0, 12 * SLOT_MS, 1_000, SLOT_MS + 1_000, 2 * SLOT_MS):
        clock.set(begun + offset)
        await crowd.beat(f"p{offset}")
    records = await figures.records("E1", "", begun, begun + 20 * SLOT_MS)
    assert [record.timestamp for record in records] == [begun + SLOT_MS, begun + 2 * SLOT_MS]
