"""The public list of events: declared events and how many viewers they have. Details are for admins."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from plaza.core.valkey import Valkey
from plaza.live import keys
from plaza.live.heartbeats import LiveService
from plaza.live.statistics import AudienceFigures

# More than a page shows, because undeclared events among them are skipped.
MAX_EVENTS_READ: Final = 100
MAX_EVENTS_SHOWN: Final = 30
MAX_SESSIONS_SHOWN: Final = 50


class ScheduledEvent(Struct):
    """A declared event and its current number of viewers."""

    id: str
    title: str
    sessions: list[str]  # the first MAX_SESSIONS_SHOWN
    session_count: int
    watching: int


class EventSchedule:
    """Reads declared events."""

    def __init__(self, valkey: Valkey, live: LiveService, figures: AudienceFigures) -> None:
        self._valkey = valkey
        self._live = live
        self._figures = figures

    async def list_events(self) -> list[ScheduledEvent]:
        """Return the declared events with the most viewers first. Two round trips."""
        names = await self._valkey.call("ZRANGE", keys.LIVE_EVENTS(), 0, MAX_EVENTS_READ - 1, "REV")
        found = await asyncio.gather(*(self.get_event(name) for name in names))
        declared = [event for event in found if event is not None]
        return sorted(declared, key=lambda event: -event.watching)[:MAX_EVENTS_SHOWN]

    async def get_event(self, event: str) -> ScheduledEvent | None:
        """Return a declared event; None if the event is not declared. One round trip."""
        known, watching = await asyncio.gather(self._live.get_event(event), self._figures.alive(event))
        if not known.declared:
            return None
        shown = known.sessions[:MAX_SESSIONS_SHOWN]
        return ScheduledEvent(event, known.title or event, shown, len(known.sessions), watching)
