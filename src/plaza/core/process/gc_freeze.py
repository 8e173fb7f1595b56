"""Makes cyclic garbage collection cheap and short in a server.

The collector traces all objects of a generation at once, and every request waits meanwhile: about 0.3 µs per object.
In a server most objects are modules, routes, tables and caches, which stay; a request creates a few hundred objects,
which reference counting frees. So what exists at the start is left out, young objects are collected in small portions,
and the oldest generation while no request arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from typing import Final

# New objects between two collections; collections until the second generation is collected too, which takes a
# millisecond; and of these until all objects are, for a process that is never idle.
GC_THRESHOLDS: Final = (1_000, 4, 2_000)

# Collections of the second generation after which an idle process collects all objects.
FULL_AFTER: Final = 20
IDLE_SECONDS: Final = 1.0

# Importing Plaza creates half a million objects, and nearly all stay: collecting meanwhile takes a fifth of its CPU.
GC_START_THRESHOLD: Final = 1_000_000


def relax_gc() -> None:
    """Collect garbage rarely. Call it before modules are imported."""
    gc.set_threshold(GC_START_THRESHOLD)


def freeze_gc() -> None:
    """Exclude all existing objects from collection. Call it when the process has loaded everything it needs.

    It collects nothing before: that would take 90 ms, to free the half megabyte of garbage of a start.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


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
