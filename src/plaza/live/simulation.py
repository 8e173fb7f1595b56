"""A simulated audience, for demos, tests and load tests.

Most viewers arrive in the first third. They stay for very different times, send heartbeats at the interval they are
given, and leave (6 in 10) or disappear. Some have two tabs open. Everything happens in the minutes up to now, at any
speed; afterwards the event looks as if it had been watched all that time.
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
from plaza.live.heartbeats import LiveService
from plaza.live.model import Heartbeat, LeaveRequest, Viewer

COUNTRIES = {"US": 30, "IN": 14, "DE": 10, "BR": 9, "GB": 8, "FR": 8, "JP": 7, "NZ": 5, "NG": 5, "ZZ": 4}
GROUPS = ("members", "press", "staff")
LOCATIONS = {"web": 7, "phone": 4, "tv": 1}
# Requests at the same time.
CONCURRENT_REQUESTS = 200


class ViewerAction(IntEnum):
    """A viewer's next action. Leaving sorts first: a viewer who leaves and beats in one millisecond has left."""

    LEAVE = 0
    BEAT = 1


@dataclass(slots=True)
class SimulatedViewer:
    viewer: Viewer
    session: str | None
    location: str
    until: int  # Unix milliseconds
    says_goodbye: bool
    groups: list[str]


@dataclass(slots=True)
class SimulationResult:
    """How many viewers there were, and what they did."""

    viewers: int = 0
    beats: int = 0
    left: int = 0
    vanished: int = 0


class AudienceSimulation:
    """Simulates an audience. The same seed gives the same viewers and the same actions."""

    def __init__(
        self,
        functions: Functions,
        settings: Settings,
        event: str,
        *,
        viewers: int,
        minutes: float,
        seed: int = 0,
        origin: str = "",
    ) -> None:
        self._clock = ManualClock()
        self._live = LiveService(functions, settings, self._clock, origin=origin)
        self._valkey = functions.valkey
        self._event = event
        self._viewers = viewers
        self._ms = round(minutes * 60_000)
        self._rng = random.Random(f"{event}/{seed}")
        self._queue: list[tuple[int, ViewerAction, int, SimulatedViewer]] = []
        self._order = count()
        self.result = SimulationResult()

    async def run(
        self, clock: Clock, speed: float = 0, progress: Callable[[float], None] | None = None
    ) -> SimulationResult:
        """Run it, `speed` times as fast as real time, or as fast as possible (0)."""
        now = clock.now_ms()
        start = now - self._ms
        for n in range(self._viewers):
            self._arrive(n, start, now)
        await self._hold(start)
        started = monotonic()
        try:
            while self._queue and self._queue[0][0] <= now:
                at = self._queue[0][0]
                if speed:
                    await asyncio.sleep(max(0.0, (at - start) / 1000 / speed - (monotonic() - started)))
                self._clock.set(at)
                await self._play_until(at + 1000)
                if progress is not None:
                    progress((at - start) / self._ms)
        finally:
            await self._release(now)
        return self.result

    async def _hold(self, start: int) -> None:
        """Keep the worker away during the run: to it, viewers of the past look silent."""
        await self._valkey.call("HSET", keys.EVENT_INFO(self._event), "awake", 1)
        await self._valkey.call("ZADD", keys.LIVE_EVENTS(), "GT", start, self._event)

    async def _release(self, now: int) -> None:
        await self._valkey.call("ZADD", keys.LIVE_AWAKE(), "GT", now, self._event)

    def _arrive(self, n: int, start: int, now: int) -> None:
        rng = self._rng
        arrives = start + round(rng.betavariate(1.6, 2.6) * self._ms)
        stays = min(rng.lognormvariate(0, 0.9), 8) * self._ms * 0.35
        country = rng.choices(list(COUNTRIES), list(COUNTRIES.values()))[0]
        address = f"198.18.{n >> 8 & 255}.{n & 255}"
        simulated = SimulatedViewer(
            Viewer(f"~sim-{n}", address, country),
            f"{self._event}-{rng.choice(('main', 'main', 'side'))}",
            rng.choices(list(LOCATIONS), list(LOCATIONS.values()))[0],
            arrives + round(stays),
            rng.random() < 0.6,
            [group for group in GROUPS if rng.random() < 0.15],
        )
        self._push(arrives, ViewerAction.BEAT, simulated)
        if rng.random() < 0.05:
            second = SimulatedViewer(
                simulated.viewer, None, "second-tab", simulated.until - round(stays / 2), True, simulated.groups
            )
            self._push(arrives + round(stays / 4), ViewerAction.BEAT, second)
        self.result.viewers += 1

    def _push(self, at: int, does: ViewerAction, simulated: SimulatedViewer) -> None:
        heapq.heappush(self._queue, (at, does, next(self._order), simulated))

    async def _play_until(self, until: int) -> None:
        """Run the actions of one second, each at its own millisecond, many at the same time."""
        batch: list[Awaitable[None]] = []
        while self._queue and self._queue[0][0] < until:
            at, does, _, simulated = heapq.heappop(self._queue)
            if at > self._clock.now_ms() or len(batch) == CONCURRENT_REQUESTS:
                await asyncio.gather(*batch)
                batch = []
                self._clock.set(at)
            batch.append(self._leave(simulated) if does is ViewerAction.LEAVE else self._beat(simulated, at))
        await asyncio.gather(*batch)

    async def _beat(self, simulated: SimulatedViewer, at: int) -> None:
        reply = await self._live.beat(
            simulated.viewer, self._event, Heartbeat(simulated.location, simulated.session, list(simulated.groups))
        )
        self.result.beats += 1
        following = at + round(reply.next_heartbeat_ms * self._rng.uniform(0.9, 1))
        if following < simulated.until:
            self._push(following, ViewerAction.BEAT, simulated)
        elif simulated.says_goodbye:
            self._push(max(simulated.until, at + 1), ViewerAction.LEAVE, simulated)
        else:
            self.result.vanished += 1

    async def _leave(self, simulated: SimulatedViewer) -> None:
        await self._live.leave(simulated.viewer, self._event, LeaveRequest(simulated.location, simulated.session))
        self.result.left += 1
