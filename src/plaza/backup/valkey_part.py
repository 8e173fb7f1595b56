"""The keys of a backup: an RDB of each server, and how they get into another one.

They are restored through a Valkey of its own, which loads the RDB: `DUMP` and `RESTORE` then work for any target, one
server or a cluster with another number of nodes, without access to its files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from plaza.backup.chunks import BrokenBackup, ChunkStore, StoredStream
from plaza.backup.snapshots import ValkeyPart
from plaza.core.embedded_valkey import EmbeddedValkey, ValkeyFailed
from plaza.core.valkey import Arg, ReplyError, Valkey, connect, scan_pages
from plaza.core.valkey.address import parse_url
from plaza.core.valkey.connection_fencing import CONNECTION_NAMES, own_name_prefix
from plaza.core.valkey.rdb_stream import RdbStream, open_rdb
from plaza.core.valkey.slots import key_slot
from plaza.core.valkey.standalone import StandaloneValkey

# Of a batch of DUMP or RESTORE: a key can have many megabytes.
_CALL_SECONDS: Final = 600.0
_READ_BYTES: Final = 1 << 20
_PAGE_KEYS: Final = 200

OnBytes = Callable[[int], None]


async def open_streams(valkey: Valkey, stack: AsyncExitStack) -> list[RdbStream]:
    """Ask every primary for its RDB at the same time. Their moments have passed when this returns."""
    nodes = [node for node in valkey.primaries() if isinstance(node, StandaloneValkey)]
    opening = [asyncio.ensure_future(stack.enter_async_context(open_rdb(node.address))) for node in nodes]
    try:
        return await asyncio.gather(*opening)
    finally:
        for task in opening:
            task.cancel()


async def spool(stream: RdbStream, file: Path, on_bytes: OnBytes) -> None:
    """Write an RDB to a file, as fast as the server sends it."""
    with file.open("wb") as out:
        async for data in stream.chunks():
            out.write(data)
            on_bytes(len(data))


async def store(valkey: Valkey, url: str, files: Sequence[Path], chunks: ChunkStore, on_bytes: OnBytes) -> ValkeyPart:
    """Store the RDB files."""
    nodes = [await chunks.put(read_file(file, on_bytes)) for file in files]
    return ValkeyPart(valkey.layout.value, parse_url(url)[0][0].database, tuple(nodes))


async def read_file(file: Path, on_bytes: OnBytes = lambda done: None) -> AsyncIterator[bytes]:
    """Yield a file and delete it."""
    with file.open("rb") as source:
        while data := source.read(_READ_BYTES):
            yield data
            on_bytes(len(data))
    await asyncio.to_thread(file.unlink)


async def load_keys(part: ValkeyPart, chunks: ChunkStore, folder: Path, target: Valkey, on_keys: OnBytes) -> int:
    """Write all keys of a backup to an empty Valkey. Returns their number."""
    count = 0
    for number, stream in enumerate(part.nodes):
        count += await _load_node(stream, part.database, chunks, folder / f"node-{number}", target, on_keys)
    return count


async def _load_node(
    stream: StoredStream, database: int, chunks: ChunkStore, folder: Path, target: Valkey, on_keys: OnBytes
) -> int:
    files = folder / "valkey" / "appendonlydir"
    files.mkdir(mode=0o700, parents=True)
    with (files / "appendonly.aof.1.base.rdb").open("wb") as file:
        async for data in chunks.read(stream):
            file.write(data)
    (files / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
    count = 0
    try:
        async with EmbeddedValkey(folder) as loaded:
            separator = "?db=" if loaded.url.startswith("unix:") else "/"
            async with await connect(f"{loaded.url}{separator}{database}") as source:
                async for keys in scan_pages(source, "SCAN", count=_PAGE_KEYS, raw=True):
                    count += await _copy_keys(source, target, keys)
                    on_keys(len(keys))
    except ValkeyFailed as failed:
        raise BrokenBackup(f"The keys of the backup cannot be loaded: {failed}") from None
    return count


async def _copy_keys(source: Valkey, target: Valkey, keys: Sequence[bytes]) -> int:
    reads: list[tuple[Arg, ...]] = [(name, key) for key in keys for name in ("DUMP", "PEXPIRETIME")]
    replies: list[Any] = await source.batch(reads, raw=True, timeout=_CALL_SECONDS)
    writes: list[tuple[Arg, ...]] = [
        ("RESTORE", key, max(expires_ms, 0), value, "REPLACE", "ABSTTL")
        for key, value, expires_ms in zip(keys, replies[::2], replies[1::2], strict=True)
        if value is not None  # it has expired
    ]
    await target.batch(writes, raw=True, timeout=_CALL_SECONDS)
    return len(writes)


async def is_empty(valkey: Valkey) -> bool:
    """Whether no primary has a key."""
    sizes: list[Awaitable[Any]] = [node.call("DBSIZE") for node in valkey.primaries()]
    return not any(await asyncio.gather(*sizes))


async def find_other_process(valkey: Valkey) -> str | None:
    """Return the address of a connection that another process of Plaza has to the same database; None without one."""
    for node in valkey.primaries():
        try:
            listed = str(await node.call("CLIENT", "LIST", "TYPE", "normal"))
        except ReplyError:  # this user may not see them
            continue
        for line in listed.splitlines():
            client = dict(pair.split("=", 1) for pair in line.split(" ") if "=" in pair)
            is_plaza = client["name"].startswith(CONNECTION_NAMES) and not client["name"].startswith(own_name_prefix())
            if is_plaza and client["db"] == str(_database(node)):
                return client["addr"]
    return None


def _database(node: Valkey) -> int:
    return node.address.database if isinstance(node, StandaloneValkey) else 0


async def replace_all_keys(valkey: Valkey, key: str, value: str) -> None:
    """Delete every key of the database, and set one. It is there as soon as any other is gone."""
    slot = key_slot(key)
    nodes = sorted(valkey.primaries(), key=lambda node: slot not in valkey.slots_on(node))
    await nodes[0].multi([("FLUSHDB",), ("SET", key, value)], timeout=_CALL_SECONDS)
    for node in nodes[1:]:
        await node.call("FLUSHDB", timeout=_CALL_SECONDS)
