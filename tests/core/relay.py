"""A TCP relay between a client and a server that can cut, delay and split the data."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import time
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class Relay:
    """Passes bytes on, in the sizes that `pieces` says for replies.

    `cut` breaks what is open; `cut_after` breaks each connection after so many bytes of replies.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._target = port
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepted: list[float] = []
        self.refuse = False
        self.cut_after: int | None = None
        self.pieces: list[int] = [_CHUNK]
        self.passed = 0  # bytes of replies on the newest connection

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}"

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.append(time.monotonic())
        if self.refuse:
            writer.transport.abort()
            return
        self._writers.add(writer)  # here, since a task that is cancelled before its first step runs no code
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = {writer}
        try:
            with contextlib.suppress(OSError):
                there, onward = await asyncio.open_connection("127.0.0.1", self._target)
                ends.add(onward)
                self._writers.add(onward)
                await asyncio.gather(self._ask(reader, onward), self._answer(there, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        allowed = self.cut_after
        passed = self.passed = 0  # per connection
        sizes = itertools.cycle(self.pieces)
        while data := await reader.read(_CHUNK):
            if allowed is not None:
                data = data[: allowed - passed]
            while data:
                size = next(sizes)
                writer.write(data[:size])
                passed = self.passed = passed + len(data[:size])
                data = data[size:]
                await writer.drain()
                await asyncio.sleep(0)  # so that the reader runs now
            if passed == allowed:
                writer.close()
                await writer.wait_closed()
                break
        raise ConnectionResetError
