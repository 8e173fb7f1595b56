"""Rebuilds notifications from source data, beside a running server: after events were lost, or all of them."""

from __future__ import annotations

from typing import Final

from plaza.core.clock import Clock
from plaza.core.notification_source import NotificationSource
from plaza.core.settings import Settings
from plaza.notifications.recorder import Recorder

DAY_MS: Final = 86_400_000


class NotificationRebuild:
    """Records again what stands in source data."""

    def __init__(self, recorder: Recorder, settings: Settings, clock: Clock) -> None:
        self._recorder = recorder
        self._days = settings.events_days
        self._clock = clock

    async def run_all(self) -> int:
        """Record what all sources have since events are stored. Returns how many activities changed a group."""
        return sum([await self.run(source) for source in self._recorder.sources])

    async def run(self, source: NotificationSource) -> int:
        """Record what a source has since events are stored. Returns how many activities changed a group.

        What is older was told by events before, or is dismissed. Source data does not say what was imported, so what
        was imported since then is told too.
        """
        start = self._clock.now_ms() - self._days * DAY_MS
        changed = 0
        async for batch in source.all_activities(start):
            changed += await self._recorder.refresh(source, batch)
        return changed
