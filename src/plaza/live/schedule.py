"""What is on, for everybody: declared events and how many watch. Who they are, and from where, is for admins."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from plaza.core.valkey import Valkey
from plaza.live import keys
from plaza.live.service import LiveService
from plaza.live.statistics import AudienceFigures

# More than a page shows; events that nobody declared are passed over.
LOOKED_AT: Final = 100
SHOWN: Final = 30


class ScheduledEvent(Struct):
    """A declared event, and how many watch it now."""

    id: str
    title: str
    sessions: list[str]
    watching: int


class EventSchedule:
    """What one can watch."""

    def __init__(self, valkey: Valkey, live: LiveService, figures: AudienceFigures) -> None:
        self._valkey = valkey
        self._live = live
        self._figures = figures

    async def all(self) -> list[ScheduledEvent]:
        """Declared events, the liveliest first. Two round trips."""
        events = await self._valkey.call("ZRANGE", keys.LIVE_EVENTS(), 0, LOOKED_AT - 1, "REV")
        found = await asyncio.gather(*(self.one(event) for event in events))
        shown = [showing for showing in found if showing is not None]
        return sorted(shown, key=lambda showing: -showing.watching)[:SHOWN]

    async def one(self, event: str) -> ScheduledEvent | None:
        """One event; None if nobody declared it. One round trip."""
        known, watching = await asyncio.gather(self._live.event(event), self._figures.alive(event))
        return ScheduledEvent(event, known.title or event, known.sessions, watching) if known.declared else None
