"""Makes cyclic garbage collection cheap and short in a server.

The collector traces all objects of a generation at once, and every request waits meanwhile: about 0.3 µs per object.
In a server most objects are modules, routes, tables and caches, which stay; a request creates a few hundred objects,
which reference counting frees. So what exists at the start is left out, young objects are collected in small portions,
and the oldest generation while no request arrives (`idle_collector.py`).
"""

from __future__ import annotations

import gc
from typing import Final

# New objects between two collections; collections until the second generation is collected too, which takes a
# millisecond; and of these until all objects are, for a process that is never idle.
GC_THRESHOLDS: Final = (1_000, 4, 2_000)

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
