"""The invariants of the cache keys that `keys.py` cannot express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaza.caching.keys import ITEM_VIEWS, ROW_DELAYS, ROW_SCHEDULE, ROW_STATE
from plaza.core.invariants import Command, Entry, Invariant, Invariants

REPAIRS = {"row": ROW_STATE, "views": ITEM_VIEWS}


def _no_reads(entry: Entry) -> Sequence[Command]:
    return ()


def _check_views(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return None if entry.value <= 0 else f"has {entry.member} at {entry.value}, and views count down from 0"


def _read_delay_of_row(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", ROW_DELAYS(), entry.parts[0]),) if "delay" in entry.value else ()


def _check_row(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return "has a `delay` but is not in `delay:`" if None in replies else None


# `delay:` decides. Other services may schedule rows by writing `delay:` and `schedule:` only; the state of the row
# follows when a worker copies it. A worker also removes a row with a delay of 0 or less, or without one, when it is
# due.
def _read_due_time(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", ROW_SCHEDULE(), entry.member),)


def _check_delay(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return f"has {entry.member}, which is not scheduled" if replies[0] is None else None


INVARIANTS = Invariants(
    [
        Invariant("score", ITEM_VIEWS, _no_reads, _check_views),
        Invariant("schedule", ROW_STATE, _read_delay_of_row, _check_row, per_key=True),
        Invariant("schedule", ROW_DELAYS, _read_due_time, _check_delay),
    ],
    REPAIRS,
)
