"""Peak, logins and attendance of an audience over all its lives: the current keys, and earlier lives in SQL."""

from __future__ import annotations

from plaza.core.clock import Clock
from plaza.core.functions import Functions
from plaza.core.sequences import chunks
from plaza.core.settings import Settings
from plaza.core.valkey import scan_pages
from plaza.live import keys
from plaza.live.current_audience import CurrentAudience
from plaza.live.history import PAGE_SIZE, AudienceHistory, AudienceTotals


class LifetimeTotals:
    """Totals of events and sessions over all their lives."""

    def __init__(self, functions: Functions, history: AudienceHistory, settings: Settings, clock: Clock) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._history = history
        self._clock = clock
        self._window_ms = settings.live_alive_seconds * 1000

    async def get(self, event: str, session: str = "") -> AudienceTotals:
        """Return peak, logins and attendance of an event or a session, over all its lives."""
        audience = keys.session_audience(session) if session else keys.event_audience(event)
        now = await self.get_current(audience)
        lives = (await self._history.get_lives(event)).get(session, [])
        return await self.combine(event, session, now.totals, lives)

    async def count_seen(self, event: str) -> int:
        """Return how many distinct viewers were ever seen."""
        now = await self.get_current(keys.event_audience(event))
        lives = (await self._history.get_lives(event)).get("", [])
        return max(now.seen, (await self.combine(event, "", now.totals, lives)).attended)

    async def combine(
        self, event: str, session: str, now: AudienceTotals, lives: list[AudienceTotals]
    ) -> AudienceTotals:
        """Return the totals of the current life and the earlier ones together."""
        past = [life for life in lives if life.born_at != now.born_at]
        if not past:
            return now
        best = max([now, *past], key=lambda life: life.peak)
        logins = now.logins + sum(life.logins for life in past)
        attended = await self._count_attended(event, session, now, past)
        return AudienceTotals(now.born_at, best.peak, best.peak_at, logins, attended)

    async def _count_attended(self, event: str, session: str, now: AudienceTotals, past: list[AudienceTotals]) -> int:
        """Count the viewers of several lives once: those in SQL, and the current ones who are not in SQL yet."""
        if not now.attended and len(past) == 1:
            return past[0].attended
        scope = session or None
        recorded = await self._history.viewings.count_attended(event, scope)
        name = keys.SESSION_ATTENDED(session) if session else keys.EVENT_ATTENDED(event)
        new: set[str] = set()
        async for viewers in scan_pages(self._valkey, "SSCAN", name, count=PAGE_SIZE):
            for page in chunks(viewers, PAGE_SIZE):
                new |= set(page) - await self._history.viewings.find_attended(event, scope, page)
        return recorded + len(new)

    async def get_current(self, audience: list[str]) -> CurrentAudience:
        """Return the figures of the current life. One round trip."""
        return await CurrentAudience.read(self._functions, audience, self._clock.now_ms(), self._window_ms)
