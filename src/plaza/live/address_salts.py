"""The salt that addresses are hashed with: one per day, shared by all processes, deleted after two days.

Valkey expires a salt after two days. Its append-only file still contains the command that wrote the salt, and anyone
with that file could undo the hashes. So the worker rewrites the file every day.
"""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime, timedelta

from plaza.core.clock import Clock
from plaza.core.valkey import Valkey
from plaza.live.keys import LIVE_SALT

SALT_SECONDS = 2 * 86_400
# How many days of expired salts a worker removes after a downtime.
LOOK_BACK_DAYS = 30


class AddressSalts:
    """Gives the salt of today and removes old ones."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._cached: tuple[date | None, bytes] = (None, b"")

    async def get_today(self) -> bytes:
        """Return the salt of today. One round trip per process and day."""
        day = self._today()
        if self._cached[0] != day:
            new = secrets.token_hex(32)
            existing = await self._valkey.call("SET", LIVE_SALT(day.isoformat()), new, "NX", "GET", "EX", SALT_SECONDS)
            self._cached = (day, bytes.fromhex(existing or new))
        return self._cached[1]

    async def destroy_old(self) -> int:
        """Rewrite the append-only file of every server, without expired salts. Returns the number of servers."""
        old = [self._today() - timedelta(days=n) for n in range(2, LOOK_BACK_DAYS)]
        # Reading an expired key removes it, so that it is not in the rewritten file.
        await self._valkey.batch([("EXISTS", LIVE_SALT(day.isoformat())) for day in old])
        rewritten = 0
        for server in self._valkey.primaries():
            if "aof_enabled:1" in await server.call("INFO", "persistence"):
                await server.call("BGREWRITEAOF")
                rewritten += 1
        return rewritten

    def _today(self) -> date:
        return datetime.fromtimestamp(self._clock.now_s(), UTC).date()
