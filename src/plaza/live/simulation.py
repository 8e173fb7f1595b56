"""A believable audience, for demos, tests and load: people come, stay for a while, and go, in one way or another.

They arrive in a ramp that is steepest at a third of the time, stay for times that differ a lot, beat when they were
told to, and leave politely (6 in 10) or just vanish. Some have two tabs open. It all happens in the last so many
minutes up to now, played as fast as wanted: afterwards the event looks as if it had been watched all that time.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from time import monotonic

from plaza.core.clock import Clock, ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.model import Heartbeat, LeaveRequest, Viewer
from plaza.live.service import LiveService

COUNTRIES = {"US": 30, "IN": 14, "DE": 10, "BR": 9, "GB": 8, "FR": 8, "JP": 7, "NZ": 5, "NG": 5, "ZZ": 4}
GROUPS = ("members", "press", "staff")
LOCATIONS = {"web": 7, "phone": 4, "tv": 1}
# Requests under way at once.
TOGETHER = 200


class ViewerAction(IntEnum):
    """What someone does next. Leaving sorts first: who goes and comes in one moment has gone."""

    LEAVE = 0
    BEAT = 1


@dataclass(slots=True)
class SimulatedViewer:
    watcher: Viewer
    session: str | None
    location: str
    until: int  # Unix milliseconds
    polite: bool
    groups: list[str]


@dataclass(slots=True)
class SimulationResult:
    """What happened."""

    people: int = 0
    beats: int = 0
    left: int = 0
    vanished: int = 0


class AudienceSimulation:
    """Plays an audience. The same seed gives the same people doing the same things."""

    def __init__(
        self, functions: Functions, settings: Settings, event: str, *, viewers: int, minutes: float, seed: int = 0
    ) -> None:
        self._clock = ManualClock()
        self._live = LiveService(functions, settings, self._clock)
        self._valkey = functions.valkey
        self._event = event
        self._viewers = viewers
        self._ms = round(minutes * 60_000)
        self._dice = random.Random(f"{event}/{seed}")
        self._queue: list[tuple[int, ViewerAction, int, SimulatedViewer]] = []
        self._order = count()
        self.done = SimulationResult()

    async def run(
        self, clock: Clock, speed: float = 0, progress: Callable[[float], None] | None = None
    ) -> SimulationResult:
        """Play it, `speed` times as fast as life, or as fast as it goes (0)."""
        now = clock.now_ms()
        start = now - self._ms
        for n in range(self._viewers):
            self._arrive(n, start, now)
        await self._hold(start)
        begun = monotonic()
        try:
            while self._queue and self._queue[0][0] <= now:
                at = self._queue[0][0]
                if speed:
                    await asyncio.sleep(max(0.0, (at - start) / 1000 / speed - (monotonic() - begun)))
                self._clock.set(at)
                await self._moment(at + 1000)
                if progress is not None:
                    progress((at - start) / self._ms)
        finally:
            await self._release(now)
        return self.done

    async def _hold(self, start: int) -> None:
        """Keep the worker away while the past is being played: to it, everyone here has long been silent."""
        await self._valkey.call("HSET", keys.EVENT_INFO(self._event), "awake", 1)
        await self._valkey.call("ZADD", keys.LIVE_EVENTS(), "GT", start, self._event)

    async def _release(self, now: int) -> None:
        await self._valkey.call("ZADD", keys.LIVE_AWAKE(), "GT", now, self._event)

    def _arrive(self, n: int, start: int, now: int) -> None:
        dice = self._dice
        arrives = start + round(dice.betavariate(1.6, 2.6) * self._ms)
        stays = min(dice.lognormvariate(0, 0.9), 8) * self._ms * 0.35
        country = dice.choices(list(COUNTRIES), list(COUNTRIES.values()))[0]
        address = f"198.18.{n >> 8 & 255}.{n & 255}"
        person = SimulatedViewer(
            Viewer(f"~sim-{n}", address, country),
            f"{self._event}-{dice.choice(('main', 'main', 'side'))}",
            dice.choices(list(LOCATIONS), list(LOCATIONS.values()))[0],
            arrives + round(stays),
            dice.random() < 0.6,
            [group for group in GROUPS if dice.random() < 0.15],
        )
        self._push(arrives, ViewerAction.BEAT, person)
        if dice.random() < 0.05:
            second = SimulatedViewer(
                person.watcher, None, "second-tab", person.until - round(stays / 2), True, person.groups
            )
            self._push(arrives + round(stays / 4), ViewerAction.BEAT, second)
        self.done.people += 1

    def _push(self, at: int, does: ViewerAction, person: SimulatedViewer) -> None:
        heapq.heappush(self._queue, (at, does, next(self._order), person))

    async def _moment(self, until: int) -> None:
        """Everything of one second: each at its own millisecond, many under way at once."""
        batch: list[Awaitable[None]] = []
        while self._queue and self._queue[0][0] < until:
            at, does, _, person = heapq.heappop(self._queue)
            if at > self._clock.now_ms() or len(batch) == TOGETHER:
                await asyncio.gather(*batch)
                batch = []
                self._clock.set(at)
            batch.append(self._leave(person) if does is ViewerAction.LEAVE else self._beat(person, at))
        await asyncio.gather(*batch)

    async def _beat(self, person: SimulatedViewer, at: int) -> None:
        heard = await self._live.beat(
            person.watcher, self._event, Heartbeat(person.location, person.session, list(person.groups))
        )
        self.done.beats += 1
        following = at + round(heard.next_heartbeat_ms * self._dice.uniform(0.9, 1))
        if following < person.until:
            self._push(following, ViewerAction.BEAT, person)
        elif person.polite:
            self._push(max(person.until, at + 1), ViewerAction.LEAVE, person)
        else:
            self.done.vanished += 1

    async def _leave(self, person: SimulatedViewer) -> None:
        await self._live.leave(person.watcher, self._event, LeaveRequest(person.location, person.session))
        self.done.left += 1
