"""Reads all keys of a server as of one moment: the RDB that Valkey sends to a new replica.

`SYNC` makes Valkey fork, and the child sends what was in memory at that moment while the parent goes on. It needs no
access to the server's files. The user needs the commands `SYNC` and `REPLCONF`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final

from plaza.core.errors import OperatorError
from plaza.core.valkey.address import Address
from plaza.core.valkey.calls import ConnectionLost
from plaza.core.valkey.connection import pack

# Valkey sends an empty line every second while it waits for another child process, such as a rewrite of its file.
SILENCE_SECONDS: Final = 60.0
_READ_BYTES: Final = 1 << 20


class RdbStream:
    """An RDB that is being sent. Its moment has passed when `open_rdb` yields this."""

    def __init__(self, reader: asyncio.StreamReader, address: Address, header: bytes) -> None:
        self._reader = reader
        self._address = address
        self._mark = header[5:] if header.startswith(b"$EOF:") else b""
        self._bytes = 0 if self._mark else int(header[1:])

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the RDB. Raises `ConnectionLost` if it ends too early."""
        if self._mark:
            async for data in self._chunks_until_mark():
                yield data
            return
        left = self._bytes
        while left:
            data = await _received(self._reader.read(min(left, _READ_BYTES)), self._address)
            left -= len(data)
            yield data

    async def _chunks_until_mark(self) -> AsyncIterator[bytes]:
        held = b""
        while True:
            held += await _received(self._reader.read(_READ_BYTES), self._address)
            end = held.find(self._mark)
            if end >= 0:
                yield held[:end]
                return
            safe = max(len(held) - len(self._mark) + 1, 0)  # the rest may be the beginning of the mark
            yield held[:safe]
            held = held[safe:]


@asynccontextmanager
async def open_rdb(address: Address) -> AsyncIterator[RdbStream]:
    """Ask a server for its RDB. Raises `OperatorError` if the user may not, `ConnectionLost` if there is no server."""
    reader, writer = await _connect(address)
    try:
        if address.password:
            user = [address.username] if address.username else []
            await _call(reader, writer, address, "AUTH", *user, address.password)
        # `eof`: no file on the server, and the header comes at the moment of the fork. `rdb-only`: no writes follow.
        await _call(reader, writer, address, "REPLCONF", "capa", "eof")
        await _call(reader, writer, address, "REPLCONF", "rdb-only", "1")
        writer.write(pack(("SYNC",)))
        header = await _line(reader, address)
        while header == b"":
            header = await _line(reader, address)
        if not header.startswith(b"$"):
            raise _refused(address, header)
        yield RdbStream(reader, address, header)
    finally:
        writer.close()


async def _connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        if address.path:
            return await asyncio.open_unix_connection(address.path)
        return await asyncio.open_connection(address.host, address.port, ssl=address.tls)
    except OSError as error:
        raise ConnectionLost(f"Cannot connect to {address}: {error}", may_have_run=False) from None


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address, *command: str) -> None:
    writer.write(pack(command))
    reply = await _line(reader, address)
    if not reply.startswith(b"+"):
        raise _refused(address, reply)


async def _line(reader: asyncio.StreamReader, address: Address) -> bytes:
    return (await _received(reader.readline(), address)).strip()


async def _received(reading: Awaitable[bytes], address: Address) -> bytes:
    """Return what was read. Raises `ConnectionLost` at the end of the connection, or after a long silence."""
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            data = await reading
    except (OSError, TimeoutError) as error:
        raise ConnectionLost(f"{address} sent no complete RDB: {error}", may_have_run=True) from None
    if not data:
        raise ConnectionLost(f"{address} ended the connection before the RDB was complete.", may_have_run=True)
    return data


def _refused(address: Address, reply: bytes) -> OperatorError:
    reason = reply.decode(errors="replace").lstrip("-")
    return OperatorError(f"{address} sends no RDB: {reason}. Its user needs the commands SYNC and REPLCONF.")
