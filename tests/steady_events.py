"""Consumer groups of which some event always waits, as under steady writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from plaza.core.event_streams import all_streams
from plaza.core.valkey import Valkey


async def create_groups(valkey: Valkey, names: Sequence[str], group: str) -> None:
    for stream in [each for name in names for each in all_streams(name)]:
        await valkey.call("XGROUP", "CREATE", stream.key, group, "0", "MKSTREAM", key=stream.key)


async def handle_all(valkey: Valkey, names: Sequence[str], group: str) -> None:
    for stream in [each for name in names for each in all_streams(name)]:
        await valkey.call("XGROUP", "SETID", stream.key, group, "$", key=stream.key)


@asynccontextmanager
async def one_event_behind(valkey: Valkey, names: Sequence[str], group: str) -> AsyncIterator[None]:
    """Emit events during the block, and handle each when the next one exists."""
    stream = all_streams(names[0])[0].key
    await create_groups(valkey, names, group)
    await handle_all(valkey, names, group)
    await valkey.call("XADD", stream, "*", "type", "test.event")

    async def write() -> None:
        while True:
            await valkey.call("XADD", stream, "*", "type", "test.event")
            read = ("XREADGROUP", "GROUP", group, "test", "COUNT", 1, "STREAMS", stream, ">")
            found = await valkey.call(*read, key=stream)
            ((_, ((id, _),)),) = found.items() if isinstance(found, dict) else found
            await valkey.call("XACK", stream, group, id)

    writing = asyncio.create_task(write())
    try:
        yield
        assert not writing.done()
    finally:
        writing.cancel()
        await asyncio.wait([writing])
