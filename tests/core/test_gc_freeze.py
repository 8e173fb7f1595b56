"""Garbage collection after `freeze_gc`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from plaza.core.process.gc_freeze import GC_THRESHOLDS, freeze_gc
from plaza.core.process.idle_collector import FULL_AFTER, IdleCollector


@pytest.fixture(autouse=True)
def _restore_gc() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_existing_objects_are_not_collected_again() -> None:
    freeze_gc()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < gc.get_freeze_count()


def test_new_reference_cycles_are_still_collected() -> None:
    freeze_gc()
    cycles = [weakref.ref(Cycle()) for _ in range(3 * GC_THRESHOLDS[0])]
    assert sum(cycle() is not None for cycle in cycles) <= GC_THRESHOLDS[0]


def test_old_cycles_are_collected_while_no_request_arrives() -> None:
    freeze_gc()
    requests = iter((0, 1, 1))
    collector = IdleCollector(lambda: next(requests))
    old = weakref.ref(Cycle())
    keep = old()
    gc.collect(1)
    del keep
    for _ in range(FULL_AFTER):
        gc.collect(1)
    collector.collect_if_idle()
    assert old() is not None
    collector.collect_if_idle()
    assert old() is None
