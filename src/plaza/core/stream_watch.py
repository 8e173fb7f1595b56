"""Tells the consumers of a process which streams have new entries.

One blocking read watches all streams on one server; on a cluster one for each shard, since a command's keys must be in
one slot. However many consumer groups a process has, it needs no more connections. A consumer that waits reads
nothing meanwhile:

    news = watch.follow(streams)
    for stream in await news.wait(seconds):
        await read_new(stream)
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

# Between two reads of a busy stream, so that a batch has what came meanwhile, and costs little more than one event.
# The first event after a while is told at once.
PAUSE_SECONDS = 0.25


class StreamNews:
    """The streams that a consumer follows, and which of them may have entries that it has not read."""

    def __init__(self, streams: Iterable[EventStream]) -> None:
        self._streams = {stream.key: stream for stream in streams}
        self._unread = set(self._streams)
        self._told = asyncio.Event()
        self._told.set()

    async def wait(self, seconds: float) -> list[EventStream]:
        """Return the streams with new entries since the last call. If there are none, wait for them so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()
        self._told.clear()
        unread, self._unread = self._unread, set()
        return [self._streams[key] for key in sorted(unread)]

    def tell(self, keys: Iterable[str]) -> None:
        """Note that streams may have new entries."""
        if found := self._streams.keys() & keys:
            self._unread |= found
            self._told.set()

    def tell_all(self) -> None:
        self.tell(self._streams)


class StreamWatch:
    """Watches streams, and tells those who follow them."""

    def __init__(self, valkey: Valkey, streams: Iterable[EventStream]) -> None:
        self.busy = False
        self.stopping = False
        self._valkey = valkey
        self._keys = sorted({stream.key for stream in streams})
        self._followers: list[StreamNews] = []

    def follow(self, streams: Iterable[EventStream]) -> StreamNews:
        """Return what will know which of these streams have new entries. At first, all of them may have some."""
        news = StreamNews(streams)
        self._followers.append(news)
        return news

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
        found = {key: entries[0][0] if entries else "0-0" for key, entries in zip(keys, newest, strict=True)}
        changed = [key for key in keys if found[key] != last[key]]
        last.update(found)
        for news in self._followers:
            news.tell(changed)


async def _wait_for_entries(connection: BlockingConnection, last: dict[str, str]) -> list[str]:
    """Return the streams with new entries. After a read without any, all: a stream may have been deleted."""
    block = round(BLOCK_SECONDS * 1000)
    reply = await connection.call("XREAD", "COUNT", 1, "BLOCK", block, "STREAMS", *last.keys(), *last.values())
    return list(reply or last)
