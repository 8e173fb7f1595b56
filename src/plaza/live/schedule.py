"""The list of events with their viewers: declared ones for everyone, others for admins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from plaza.core.clock import Clock
from plaza.core.valkey import Valkey
from plaza.live import keys
from plaza.live.heartbeats import LiveService
from plaza.live.statistics import AudienceFigures

# More than a page shows: declared events are skipped in the list of the others, and what has viewers comes first.
MAX_EVENTS_READ: Final = 100
MAX_EVENTS_SHOWN: Final = 30
MAX_SESSIONS_SHOWN: Final = 50


class ScheduledEvent(Struct):
    """An event and its current number of viewers."""

    id: str
    title: str
    sessions: list[str]  # the first MAX_SESSIONS_SHOWN
    session_count: int
    watching: int
    starts_at: int | None
    description: str
    declared: bool


class EventSchedule:
    """Reads declared events."""

    def __init__(self, valkey: Valkey, live: LiveService, figures: AudienceFigures, clock: Clock) -> None:
        self._valkey = valkey
        self._live = live
        self._figures = figures
        self._clock = clock

    async def list_events(self) -> list[ScheduledEvent]:
        """Return the declared events: the most viewers first, what comes next, the latest. Two round trips."""
        now, key = self._clock.now_ms(), keys.LIVE_DECLARED()
        next_events, latest = await self._valkey.batch(
            [
                ("ZRANGE", key, now, "+inf", "BYSCORE", "LIMIT", 0, MAX_EVENTS_READ // 2),
                ("ZRANGE", key, f"({now}", "-inf", "BYSCORE", "REV", "LIMIT", 0, MAX_EVENTS_READ // 2),
            ]
        )
        return await self._list([*next_events, *latest], declared=True)

    async def list_undeclared(self) -> list[ScheduledEvent]:
        """Return the events that were not declared, the most viewers first, then the latest. Two round trips."""
        names = await self._valkey.call("ZRANGE", keys.LIVE_EVENTS(), 0, MAX_EVENTS_READ - 1, "REV")
        return await self._list(names, declared=False)

    async def get_event(self, event: str) -> ScheduledEvent | None:
        """Return a declared event; None if the event is not declared. One round trip."""
        found = await self._read(event)
        return found if found.declared else None

    async def _list(self, names: Sequence[str], *, declared: bool) -> list[ScheduledEvent]:
        events = [event for event in await asyncio.gather(*map(self._read, names)) if event.declared is declared]
        now = self._clock.now_ms()
        return sorted(events, key=lambda event: _order(event, now))[:MAX_EVENTS_SHOWN]

    async def _read(self, event: str) -> ScheduledEvent:
        known, watching = await asyncio.gather(self._live.get_event(event), self._figures.alive(event))
        return ScheduledEvent(
            event,
            known.title or event,
            known.sessions[:MAX_SESSIONS_SHOWN],
            len(known.sessions),
            watching,
            known.starts_at,
            known.description or "",
            known.declared,
        )


def _order(event: ScheduledEvent, now: int) -> tuple[int, int, int]:
    """Sort by viewers; those with as many as what comes next, what has no time, and what was, the latest first."""
    distance = 0 if event.starts_at is None else event.starts_at - now
    return -event.watching, (distance < 0) - (distance > 0), abs(distance)
