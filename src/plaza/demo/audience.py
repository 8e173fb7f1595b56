"""Who watches the demo's event: some forty to eighty people, who come and go.

Whether somebody is there at a moment follows from their number and the time alone, so that any worker can go on where
another stopped. Each is there for some of their own quarters of an hour, and beats every thirty seconds in a moment of
their own.
"""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import Final

from plaza.core.clock import Clock
from plaza.demo.loaders.live import EVENT, SESSIONS
from plaza.demo.users import CommunityUsers
from plaza.live.model import HEARTBEAT_INTERVAL_MS, Heartbeat, Viewer
from plaza.live.service import LiveService
from plaza.live.simulation import COUNTRIES, GROUPS, LOCATIONS

PEOPLE: Final = 110
STAY_MS: Final = 15 * 60_000
# The evening is three hours long, and every one is like the last: fewer people, then more.
WAVE_MS: Final = 3 * 3_600_000


class DemoAudience:
    def __init__(self, live: LiveService, clock: Clock) -> None:
        self._live = live
        self._clock = clock
        self._last_ms = 0

    async def beat(self) -> int:
        """Everybody beats who is there and whose moment has come since the last call. Returns how many did."""
        now = self._clock.now_ms()
        since = max(self._last_ms, now - HEARTBEAT_INTERVAL_MS)
        self._last_ms = now
        due = [n for n in range(PEOPLE) if is_due(n, since, now) and is_there(n, now)]
        await asyncio.gather(*(self._live.beat(*viewer(n)) for n in due))
        return len(due)


def is_due(n: int, since_ms: int, now_ms: int) -> bool:
    """Whether a person's moment lies between two others."""
    own = n * HEARTBEAT_INTERVAL_MS // PEOPLE
    return (since_ms - own) // HEARTBEAT_INTERVAL_MS != (now_ms - own) // HEARTBEAT_INTERVAL_MS


def is_there(n: int, now_ms: int) -> bool:
    quarter = (now_ms + n * STAY_MS // PEOPLE) // STAY_MS
    mood = 0.55 + 0.2 * math.sin(2 * math.pi * now_ms / WAVE_MS)
    return Random(f"audience/{n}/{quarter}").random() < mood


def viewer(n: int) -> tuple[Viewer, str, Heartbeat]:
    """Who somebody is, what they watch and from where. Every fourth is one of the community."""
    dice = Random(f"viewer/{n}")
    cast = CommunityUsers().people
    name = cast[n // 4].username if n % 4 == 0 and n // 4 < len(cast) else f"~guest-{n}"
    (country,) = dice.choices(list(COUNTRIES), list(COUNTRIES.values()))
    (location,) = dice.choices(list(LOCATIONS), list(LOCATIONS.values()))
    groups = [group for group in GROUPS if dice.random() < 0.2]
    session = SESSIONS[0] if dice.random() < 0.7 else SESSIONS[1]
    return Viewer(name, f"198.18.7.{n}", country), EVENT, Heartbeat(location, session, groups)
