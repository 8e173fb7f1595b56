"""What audiences look like: every figure admins ask for, from the keys as they are now."""

from __future__ import annotations

from msgspec import json

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.live import keys
from plaza.live.model import SLOT_MS, Statistics


class Figures:
    """Counts and statistics of events and sessions."""

    def __init__(self, functions: Functions, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def alive(self, event: str) -> int:
        """Viewers of an event now. One round trip, whatever their number."""
        return await self._alive(keys.EVENT_HEARTBEAT(event), keys.EVENT_INFO(event))

    async def session_alive(self, session: str) -> int:
        """Viewers of a session now. One round trip."""
        return await self._alive(keys.SESSION_HEARTBEAT(session), keys.SESSION_INFO(session))

    async def _alive(self, *names: str) -> int:
        count, _ = await self._functions.ask("live_alive", names, self._clock.now_ms(), self._window_ms)
        return int(count)

    async def seen_since(self, event: str, since_ms: int | None = None) -> int:
        """Distinct viewers from a moment (five minutes ago) until now. One round trip."""
        since = self._clock.now_ms() - SLOT_MS if since_ms is None else since_ms
        names = (keys.EVENT_HEARTBEAT(event), keys.EVENT_LEFT(event))
        return int(await self._functions.ask("live_seen_since", names, since))

    async def statistics(self, event: str) -> Statistics:
        """The audience of an event by group and country now. One round trip."""
        return await self._statistics(keys.event_audience(event))

    async def session_statistics(self, session: str) -> Statistics:
        """The same of a session."""
        return await self._statistics(keys.session_audience(session))

    async def _statistics(self, audience: list[str]) -> Statistics:
        text = await self._functions.ask("live_statistics", audience, self._clock.now_ms(), self._window_ms)
        return json.decode(text, type=Statistics)
