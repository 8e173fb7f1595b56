"""The list of events with their viewers: declared ones for everyone, others for admins."""

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

    def __init__(self, valkey: Valkey, live: LiveService, figures: AudienceFigures) -> None:
        self._valkey = valkey
        self._live = live
        self._figures = figures

    async def list_events(self) -> list[ScheduledEvent]:
        """Return the declared events with the most viewers first. Two round trips."""
        return _by_viewers([event for event in await self._latest_events() if event.declared])

    async def list_undeclared(self) -> list[ScheduledEvent]:
        """Return the events that were not declared, the most viewers first, then the latest. Two round trips."""
        return _by_viewers([event for event in await self._latest_events() if not event.declared])

    async def get_event(self, event: str) -> ScheduledEvent | None:
        """Return a declared event; None if the event is not declared. One round trip."""
        found = await self._read(event)
        return found if found.declared else None

    async def _latest_events(self) -> list[ScheduledEvent]:
        names = await self._valkey.call("ZRANGE", keys.LIVE_EVENTS(), 0, MAX_EVENTS_READ - 1, "REV")
        return await asyncio.gather(*map(self._read, names))

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


def _by_viewers(events: list[ScheduledEvent]) -> list[ScheduledEvent]:
    return sorted(events, key=lambda event: (-event.watching, event.starts_at or 0))[:MAX_EVENTS_SHOWN]
