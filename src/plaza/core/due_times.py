"""Sorted sets of due times, after a clock was set back (`clock_steps.py`)."""

from __future__ import annotations

from typing import Final

from plaza.core.sequences import pairs
from plaza.core.valkey import Valkey, scan_pages

PAGE_SIZE: Final = 500


async def make_all_due(valkey: Valkey, key: str, now: float) -> None:
    """Lower the scores of a sorted set of due times that are later than now. One round trip per page of members."""
    async for rows in scan_pages(valkey, "ZSCAN", key, count=PAGE_SIZE):
        late = [part for member, due in pairs(rows) if float(due) > now for part in (now, member)]
        if late:
            await valkey.call("ZADD", key, "XX", "LT", *late)
