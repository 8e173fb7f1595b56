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


def _read_schedule_of_row(entry: Entry) -> Sequence[Command]:
    if "delay" not in entry.value:
        return ()
    item = entry.parts[0]
    return (("ZSCORE", ROW_DELAYS(), item), ("ZSCORE", ROW_SCHEDULE(), item))


def _check_row(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    return "has a `delay` but is not in `delay:` and `schedule:`" if None in replies else None


# Other services may schedule rows by writing these two sets only. The row's state follows when a worker copies it.
def _read_due_time(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", ROW_SCHEDULE(), entry.member),)


def _check_delay(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if entry.value <= 0:
        return f"has {entry.member} at {entry.value}, which should have left the cache"
    return f"has {entry.member}, which is not scheduled" if replies[0] is None else None


def _read_delay(entry: Entry) -> Sequence[Command]:
    return (("ZSCORE", ROW_DELAYS(), entry.member),)


def _check_due_time(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if replies[0] is not None or entry.value * 1000 <= now:
        return None  # a worker removes it when it is due
    return f"has {entry.member}, which has no delay"


INVARIANTS = Invariants(
    [
        Invariant("score", ITEM_VIEWS, _no_reads, _check_views),
        Invariant("schedule", ROW_STATE, _read_schedule_of_row, _check_row, per_key=True),
        Invariant("schedule", ROW_DELAYS, _read_due_time, _check_delay),
        Invariant("schedule", ROW_SCHEDULE, _read_delay, _check_due_time),
    ],
    REPAIRS,
)
