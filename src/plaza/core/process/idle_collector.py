"""Collects garbage of the oldest generation while a process is idle.

Not in `gc_freeze.py`: every command uses that one before it imports asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from typing import Final

# Collections of the second generation after which an idle process collects all objects.
FULL_AFTER: Final = 20
IDLE_SECONDS: Final = 1.0


class IdleCollector:
    """Collects all objects while a process is idle. A hundred thousand take 40 ms."""

    def __init__(self, requests: Callable[[], int]) -> None:
        self._requests = requests  # the number of requests so far
        self._before = requests()

    def collect_if_idle(self) -> None:
        """Collect if there was no request since the last call, and enough is left from younger generations."""
        before, self._before = self._before, self._requests()
        if self._before == before and gc.get_count()[2] >= FULL_AFTER:
            gc.collect()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look once a second during the block."""

        async def look() -> None:
            while True:
                await asyncio.sleep(IDLE_SECONDS)
                self.collect_if_idle()

        task = asyncio.create_task(look(), name="garbage collection")
        try:
            yield
        finally:
            task.cancel()
