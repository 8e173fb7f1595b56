"""The audience of the demo's event: forty to eighty viewers at a time.

A viewer's number and the time decide whether they watch, so any worker can continue. Each viewer watches for some
quarters of an hour and sends a heartbeat every 30 s at their own offset.
"""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import Final

from plaza.core.clock import Clock
from plaza.demo.loaders.live import EVENT, SESSIONS
from plaza.demo.users import CommunityUsers
from plaza.live.heartbeats import LiveService
from plaza.live.model import HEARTBEAT_INTERVAL_MS, Heartbeat, Viewer
from plaza.live.simulation import COUNTRIES, GROUPS, LOCATIONS

MAX_VIEWERS: Final = 110
VISIT_MS: Final = 15 * 60_000
# The audience grows and shrinks in cycles of three hours.
CYCLE_MS: Final = 3 * 3_600_000


class DemoAudience:
    """Sends the heartbeats of the demo's viewers."""

    def __init__(self, live: LiveService, clock: Clock) -> None:
        self._live = live
        self._clock = clock
        self._last_ms = 0

    async def beat(self) -> int:
        """Send the heartbeats that are due since the last call. Returns how many."""
        now = self._clock.now_ms()
        since = max(self._last_ms, now - HEARTBEAT_INTERVAL_MS)
        self._last_ms = now
        due = [n for n in range(MAX_VIEWERS) if beats_between(n, since, now) and is_watching(n, now)]
        await asyncio.gather(*(self._live.beat(*viewer(n)) for n in due))
        return len(due)


def beats_between(n: int, since_ms: int, now_ms: int) -> bool:
    """Whether a viewer's heartbeat is due between two times."""
    offset = n * HEARTBEAT_INTERVAL_MS // MAX_VIEWERS
    return (since_ms - offset) // HEARTBEAT_INTERVAL_MS != (now_ms - offset) // HEARTBEAT_INTERVAL_MS


def is_watching(n: int, now_ms: int) -> bool:
    quarter = (now_ms + n * VISIT_MS // MAX_VIEWERS) // VISIT_MS
    share = 0.55 + 0.2 * math.sin(2 * math.pi * now_ms / CYCLE_MS)
    return Random(f"audience/{n}/{quarter}").random() < share


def viewer(n: int) -> tuple[Viewer, str, Heartbeat]:
    """Return a viewer, their event and their heartbeat. Every fourth viewer is a user of the community."""
    rng = Random(f"viewer/{n}")
    users = CommunityUsers().users
    name = users[n // 4].username if n % 4 == 0 and n // 4 < len(users) else f"~guest-{n}"
    (country,) = rng.choices(list(COUNTRIES), list(COUNTRIES.values()))
    (location,) = rng.choices(list(LOCATIONS), list(LOCATIONS.values()))
    groups = [group for group in GROUPS if rng.random() < 0.2]
    session = SESSIONS[0] if rng.random() < 0.7 else SESSIONS[1]
    return Viewer(name, f"198.18.7.{n}", country), EVENT, Heartbeat(location, session, groups)
