"""On a cluster: operations that nobody settles. A worker takes over what its caller left within half a minute; a note
that is older means that no worker runs, or that it cannot settle this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from plaza.core import keys as core
from plaza.core.invariants import Command, Entry, Invariant

# Twice what a worker takes at most.
OLD_MS = 60_000

SETTLED = "settled"


class _Note(msgspec.Struct):
    at: float = 0


def _asks(entry: Entry) -> Sequence[Command]:
    return ()


def _judge(entry: Entry, replies: Sequence[Any], now: int) -> str | None:
    if not entry.value.startswith("{"):
        return None  # who spoke of something last
    try:
        age = now - msgspec.json.decode(entry.value, type=_Note).at
    except msgspec.DecodeError:
        return f"has a note {entry.member} that cannot be read"
    return f"has not been settled for {age / 1000:.0f} s: is a worker running?" if age > OLD_MS else None


RULE = Invariant(SETTLED, core.PENDING, _asks, _judge)
