"""On a cluster: every outbox entry is settled soon. A worker recovers entries of dead processes within half a minute;
an older entry means that no worker runs, or that the worker cannot settle it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from plaza.core import keys as core
from plaza.core.invariants import Command, Entry, Invariant

# Twice the longest time that a worker needs.
MAX_AGE_MS = 60_000

SETTLED = "settled"


class _OutboxEntry(msgspec.Struct):
    at: float = 0


def _reads_nothing(entry: Entry) -> Sequence[Command]:
    return ()


def _check_settled(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if not entry.value.startswith("{"):
        return None  # the operation that computed a projection last, not an entry
    try:
        age = now - msgspec.json.decode(entry.value, type=_OutboxEntry).at
    except msgspec.DecodeError:
        return f"has an unreadable outbox entry {entry.member}"
    return f"has not been settled for {age / 1000:.0f} s: is a worker running?" if age > MAX_AGE_MS else None


INVARIANT = Invariant(SETTLED, core.PENDING, _reads_nothing, _check_settled)
