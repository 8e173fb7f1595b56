"""A real HTTP server that receives webhooks, and misbehaves as a test asks."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

Respond = Callable[["ReceivedWebhook", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class ReceivedWebhook:
    """A request that arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Any:
        return msgspec.json.decode(self.body)


def answer(status: int, body: bytes = b"", *headers: str) -> Respond:
    """Answer with a status."""

    async def respond(_: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Status", f"content-length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)

    return respond


async def hang(_: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def close_without_answer(_: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def close_in_the_middle(_: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
    """Close within the headers of the answer."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")
    await writer.drain()
    writer.close()


async def never_ending_body(_: ReceivedWebhook, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
        await writer.drain()


@dataclass
class Receiver:
    """What arrived, and how the next request is answered."""

    port: int = 0
    respond: Respond = field(default_factory=lambda: answer(200, b"ok"))
    requests: list[ReceivedWebhook] = field(default_factory=list)
    open_requests: int = 0
    most_open_requests: int = 0
    connections: int = 0
    names: list[str | None] = field(default_factory=list)  # the server names that TLS clients asked for

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def events(self) -> list[Any]:
        return [request.event for request in self.requests]

    def subjects(self) -> list[str]:
        return [event["subject"] for event in self.events()]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while request := await _read(reader):
                self.requests.append(request)
                self.open_requests += 1
                self.most_open_requests = max(self.most_open_requests, self.open_requests)
                try:
                    await self.respond(request, writer)
                    await writer.drain()
                finally:
                    self.open_requests -= 1
        writer.close()


async def _read(reader: asyncio.StreamReader) -> ReceivedWebhook | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ReceivedWebhook(first.split(" ")[1], headers, body)


@contextlib.asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[Receiver]:
    """Run a receiver on a free loopback port."""
    receiver, tasks = Receiver(**options), set[asyncio.Task[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    if tls is not None:
        tls.sni_callback = lambda _, name, __: receiver.names.append(name)
    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
