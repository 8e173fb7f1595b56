"""What addresses are hashed with, where they are hashed: a salt a day, the same in all processes, and its end.

Valkey lets a salt go after two days, and we forget it at midnight. But an append-only file still holds the command that
wrote it, and whoever has the file could undo the hashes; so the worker has the file written anew every day.
"""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime, timedelta

from plaza.core.clock import Clock
from plaza.core.valkey import Valkey
from plaza.live.keys import LIVE_SALT

SALT_SECONDS = 2 * 86_400
# How many days back a worker that was away looks for salts that are over.
LOOK_BACK_DAYS = 30


class AddressSalts:
    """The salt of today, and the end of old ones."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._todays: tuple[date | None, bytes] = (None, b"")

    async def today(self) -> bytes:
        """A round trip for each process, once a day."""
        day = self._day()
        if self._todays[0] != day:
            fresh = secrets.token_hex(32)
            name = LIVE_SALT(day.isoformat())
            there = await self._valkey.call("SET", name, fresh, "NX", "GET", "EX", SALT_SECONDS)
            self._todays = (day, bytes.fromhex(there or fresh))
        return self._todays[1]

    async def destroy(self) -> int:
        """Have every server whose file may hold old salts write it anew, without them. Returns how many servers."""
        old = [self._day() - timedelta(days=n) for n in range(2, LOOK_BACK_DAYS)]
        # To look at what has expired is to remove it.
        await self._valkey.batch([("EXISTS", LIVE_SALT(day.isoformat())) for day in old])
        rewritten = 0
        for server in self._valkey.primaries():
            if "aof_enabled:1" in await server.call("INFO", "persistence"):
                await server.call("BGREWRITEAOF")
                rewritten += 1
        return rewritten

    def _day(self) -> date:
        return datetime.fromtimestamp(self._clock.now_s(), UTC).date()
