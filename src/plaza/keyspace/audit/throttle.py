"""Leaves the server to those who need it.

Alone, the audit goes as fast as it can. As soon as others use the server, it works only a share of the time and sleeps
the rest, so that however much a step of it costs them, they lose no more than that share.
"""

from __future__ import annotations

import asyncio
from time import monotonic

from plaza.core.valkey import Valkey

# Beside traffic the audit works this share of the time.
SHARE = 0.15
# Commands a second of others that count as traffic: a worker alone makes a few dozen.
TRAFFIC = 300
# How often to look who else is there, and how long before the first step.
LOOK_SECONDS = 0.5
BEGIN_SECONDS = 0.1
# The longest sleep at once.
MOST_SECONDS = 3.0


class Pace:
    """Slows down beside others. `mine` is to be told of every command we send."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._mine = 0
        self._seen: int | None = None
        self._looked = monotonic()
        self._began = monotonic()
        self.busy = False

    def mine(self, commands: int) -> None:
        self._mine += commands

    async def begin(self) -> None:
        """Before the first step: see who is there."""
        await self._look()
        await asyncio.sleep(BEGIN_SECONDS)
        await self._look()
        self._began = monotonic()

    async def rest(self) -> None:
        """Between two steps: sleep as long as the last one asks for."""
        worked = monotonic() - self._began
        if monotonic() - self._looked > LOOK_SECONDS:
            await self._look()
        if self.busy:
            await asyncio.sleep(min(worked * (1 / SHARE - 1), MOST_SECONDS))
        self._began = monotonic()

    async def _look(self) -> None:
        nodes = self._valkey.primaries()
        told = [await node.call("INFO", "stats") for node in nodes]
        seen = sum(_commands(str(text)) for text in told)
        self._mine += len(nodes)
        elapsed = max(monotonic() - self._looked, 0.001)
        if self._seen is not None:
            self.busy = (seen - self._seen - self._mine) / elapsed > TRAFFIC
        self._seen, self._mine, self._looked = seen, 0, monotonic()


def _commands(info: str) -> int:
    for line in info.splitlines():
        if line.startswith("total_commands_processed:"):
            return int(line.partition(":")[2])
    return 0
