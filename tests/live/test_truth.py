"""Every count, at every step, equals that of a model that keeps all beats in lists and counts them one by one."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from plaza.core.clock import SetClock
from plaza.live import keys
from plaza.live.figures import Figures
from plaza.live.model import Statistics
from tests.live.conftest import Crowd

WINDOW_MS = 65_000
Place = tuple[str, str]  # session ("" for none), location


@dataclass
class Viewing:
    start: int
    end: int
    left: bool = False


@dataclass
class Model:
    """The audience of one event, by brute force."""

    viewings: dict[str, dict[Place, list[Viewing]]] = field(default_factory=dict)
    said: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # (session, user)
    peaks: Counter[str] = field(default_factory=Counter)

    def beat(self, user: str, place: Place, at: int, country: str, groups: tuple[str, ...]) -> None:
        there = self.viewings.setdefault(user, {}).setdefault(place, [])
        if not there or there[-1].left or at - there[-1].end > WINDOW_MS:
            there.append(Viewing(at, at))
        there[-1].end = at
        for scope in {"", place[0]}:
            self.said[scope, user] = (country, groups)
            self.peaks[scope] = max(self.peaks[scope], len(self.alive(scope, at)))

    def leave(self, user: str, place: Place, at: int) -> None:
        there = self.viewings.get(user, {}).get(place, [])
        if there and not there[-1].left:
            there[-1].left = True
            if at - there[-1].end <= WINDOW_MS:
                there[-1].end = at

    def alive(self, session: str, at: int) -> set[str]:
        return {
            user
            for user, places in self.viewings.items()
            for place, there in places.items()
            if session in ("", place[0]) and not there[-1].left and at - there[-1].end <= WINDOW_MS
        }

    def seen_since(self, at: int) -> int:
        return sum(any(v.end >= at for there in places.values() for v in there) for places in self.viewings.values())

    def logins(self) -> int:
        return sum(len(there) for places in self.viewings.values() for there in places.values())

    def statistics(self, session: str, at: int) -> Statistics:
        alive = self.alive(session, at)
        countries = Counter(self.said[session, user][0] for user in alive)
        groups = Counter(group for user in alive for group in self.said[session, user][1])
        return Statistics(len(alive), at, dict(groups), dict(countries))


SESSIONS = ("", "S1", "S2")


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_counts_and_peaks_are_those_of_a_brute_force_model(
    crowd: Crowd, figures: Figures, clock: SetClock, stranger: Any, seed: int
) -> None:
    dice, model = random.Random(seed), Model()
    people = [f"p{i}" for i in range(12)]
    for _ in range(250):
        # Often just at an edge of the window, so that one millisecond too many or too few shows.
        clock.set(clock.now_ms() + dice.choice((0, 1, 500, 5_000, 30_000, 64_999, 65_000, 65_001)))
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
        assert await figures.seen("E1", since) == model.seen_since(since)
    assert int(await stranger.hget(keys.EVENT_INFO("E1"), "peak")) == model.peaks[""]
    assert int(await stranger.hget(keys.SESSION_INFO("S1"), "peak")) == model.peaks["S1"]
    assert int(await stranger.hget(keys.EVENT_INFO("E1"), "logins")) == model.logins()
    assert await stranger.smembers(keys.EVENT_ATTENDED("E1")) == set(model.viewings)
