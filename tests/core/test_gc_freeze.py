"""Python's search for garbage, once the process is complete."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from plaza.core.process.gc_freeze import ROUNDS, settle


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Ring:
    def __init__(self) -> None:
        self.me = self


def test_what_stays_is_not_looked_at_again() -> None:
    settle()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < gc.get_freeze_count()


def test_garbage_in_circles_still_goes_by_itself() -> None:
    settle()
    rings = [weakref.ref(Ring()) for _ in range(3 * ROUNDS[0])]
    assert sum(ring() is not None for ring in rings) <= ROUNDS[0]
