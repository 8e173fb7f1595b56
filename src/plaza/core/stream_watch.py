"""Tells the consumers of a process when a stream has new entries.

One blocking read watches all streams on one server; on a cluster one for each shard, since a command's keys must be in
one slot. However many consumer groups a process has, it needs no more connections. A consumer that waits reads
nothing meanwhile:

    seen = watch.version(stream)
    if not await read_new(stream):
        await watch.wait(stream, seen, seconds)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

from plaza.core.event_streams import EventStream
from plaza.core.valkey import Valkey
from plaza.core.valkey.client import BlockingConnection
from plaza.core.valkey.slots import key_slot

# How long one read blocks. An idle process costs one read per shard in this time.
BLOCK_SECONDS = 5.0

# Between two reads of a busy stream, so that watching it costs little. Its consumers are busy or pause then.
PAUSE_SECONDS = 0.05


class StreamWatch:
    """Watches streams. `version` of a stream changes when it has new entries."""

    def __init__(self, valkey: Valkey, streams: Iterable[EventStream]) -> None:
        self.busy = False
        self.stopping = False
        self._valkey = valkey
        self._keys = sorted({stream.key for stream in streams})
        self._versions = dict.fromkeys(self._keys, 0)
        self._changed = {key: asyncio.Event() for key in self._keys}

    def version(self, key: str) -> int:
        """Return a number that changes when the stream has new entries."""
        return self._versions[key]

    async def wait(self, key: str, version: int, seconds: float) -> None:
        """Wait until the stream has entries that are newer than the version, at most so long."""
        if self._versions[key] == version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed[key].wait()

    def stop(self) -> None:
        self.stopping = True

    async def run(self) -> None:
        """Watch until cancelled. Raises `Unavailable` when Valkey is; the caller then calls it again."""
        by_slot: dict[int, list[str]] = {}
        for key in self._keys:
            by_slot.setdefault(key_slot(key) if self._valkey.clustered else 0, []).append(key)
        watching = [asyncio.create_task(self._watch(keys)) for keys in by_slot.values()]
        try:
            await asyncio.gather(*watching)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _watch(self, keys: Sequence[str]) -> None:
        async with self._valkey.blocking() as connection:
            last = dict.fromkeys(keys, "")
            await self._announce(last, keys)
            while not self.stopping:
                await self._announce(last, await _wait_for_entries(connection, last))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _announce(self, last: dict[str, str], keys: Sequence[str]) -> None:
        """Note the newest entry of streams, then tell their consumers, who find at least that one."""
        newest = await self._valkey.batch([("XREVRANGE", key, "+", "-", "COUNT", 1) for key in keys])
        for key, entries in zip(keys, newest, strict=True):
            last[key] = entries[0][0] if entries else "0-0"
            self._versions[key] += 1
            self._changed[key].set()
            self._changed[key] = asyncio.Event()


async def _wait_for_entries(connection: BlockingConnection, last: dict[str, str]) -> list[str]:
    """Return the streams with new entries. After a read without any, all: a stream may have been deleted."""
    block = round(BLOCK_SECONDS * 1000)
    reply = await connection.call("XREAD", "COUNT", 1, "BLOCK", block, "STREAMS", *last.keys(), *last.values())
    return list(reply or last)
