"""The figures that Valkey holds of the current life of an audience."""

from __future__ import annotations

from msgspec import Struct

from plaza.core.functions import Functions
from plaza.live.history import AudienceTotals


class CurrentAudience(Struct, frozen=True):
    """The figures in an audience's own keys."""

    totals: AudienceTotals  # `born_at` is 0 if the keys do not exist
    seen: int
    alive: int
    window_ms: int
    title: str | None

    @classmethod
    async def read(cls, functions: Functions, audience: list[str], now_ms: int, window_ms: int) -> CurrentAudience:
        """Read the figures. One round trip, for any number of viewers."""
        *totals, seen, alive, window, title = await functions.query("live_figures", audience, now_ms, window_ms)
        return cls(AudienceTotals(*totals), seen, alive, window, title)
