"""Limits what the heartbeats of one address create: undeclared events, and places (locations of events and sessions).

The limits are in this process, like those of heartbeats (`throttle.py`). The Lua function knows what is new, so it gets
the reason why something new would be refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from plaza.core.clock import Clock
from plaza.core.errors import TooFast
from plaza.core.rate_limits import Quota
from plaza.core.settings import Settings
from plaza.live.model import MAX_NEW_EVENT_BYTES, NEW_EVENT
from plaza.live.throttle import HeartbeatThrottle

# New undeclared events of one address. A site has a few events a day; more need a declaration.
NEW_EVENTS: Final = Quota(20, 3600)
# New places of one address. Many viewers may share it, but they watch the same few sessions at the same few locations.
NEW_PLACES: Final = Quota(100, 3600)


class CreationLimits:
    """Counts what addresses create."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._events = HeartbeatThrottle(clock) if settings.rate_limits else None
        self._places = HeartbeatThrottle(clock) if settings.rate_limits else None
        self._max_events = settings.live_max_events
        self.event_count = 0  # when this process last created an event or refused one

    def event_refusal(self, client: str, texts: Sequence[str]) -> str:
        """Return why a heartbeat with these ids and groups may not create an undeclared event; empty if it may."""
        if sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) > MAX_NEW_EVENT_BYTES:
            return "bytes"
        if self.event_count >= self._max_events:
            return "total"
        return "client" if _is_used_up(self._events, client, NEW_EVENTS) else ""

    def place_refusal(self, client: str) -> str:
        """Return why a heartbeat may not create a place; empty if it may."""
        return "client" if _is_used_up(self._places, client, NEW_PLACES) else ""

    def count(self, client: str, created: int) -> None:
        """Count what a heartbeat has created: `NEW_PLACE`, or `NEW_EVENT`, which is also a place."""
        with suppress(TooFast):  # simultaneous heartbeats may each create something
            if self._places is not None and client:
                self._places.take(client, NEW_PLACES)
            if self._events is not None and client and created == NEW_EVENT:
                self._events.take(client, NEW_EVENTS)


def _is_used_up(throttle: HeartbeatThrottle | None, client: str, quota: Quota) -> bool:
    return throttle is not None and bool(client) and throttle.wait_seconds(client, quota) > 0
