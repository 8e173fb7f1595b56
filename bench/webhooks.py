"""Deliveries per second from one worker to a local receiver, in a process of its own.

`python -m bench.webhooks [--events 10000]`. Events of 500 subjects wait in a stream; a worker queues, signs, sends and
records them. CPU is that of the worker; Valkey's and the receiver's are shown beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import httptools
import psutil
import uvloop

from plaza.app import running
from plaza.core.events import Events
from plaza.core.settings import Settings
from plaza.webhooks.endpoints import Webhooks
from plaza.webhooks.model import NewWebhook
from tests.servers import running_server

SUBJECTS = 500
ENDPOINTS = 4
TARGET_PER_SECOND = 1_000
LIMIT_SECONDS = 120


class ReceiverProtocol(asyncio.Protocol):
    """Answers every request with 200, as cheaply as possible."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def _receive(ready: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(ReceiverProtocol, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


async def _deliver(valkey_url: str, folder: Path, port: int, events: int) -> None:
    settings = Settings(data_dir=folder, valkey_url=valkey_url, webhooks_private=True, demo="off")
    async with running(settings) as plaza:
        webhooks, stream = plaza.get(Webhooks), Events(plaza.core.functions)
        for _ in range(ENDPOINTS):
            await webhooks.create("@cli", NewWebhook(f"http://127.0.0.1:{port}/", ["*"]))
        for number in range(events // ENDPOINTS):
            subject = str(number % SUBJECTS)
            data = f'{{"post":"{subject}","author":"ana","username":"ben"}}'
            await stream.emit("social", subject, type="post.liked", subject=subject, time=0, data=data)
        process, started = psutil.Process(), time.perf_counter()
        before = sum(process.cpu_times()[:2])
        working = asyncio.create_task(plaza.worker.run())
        await _wait_until_delivered(webhooks, events // ENDPOINTS * ENDPOINTS)
        seconds, cpu = time.perf_counter() - started, sum(process.cpu_times()[:2]) - before
        working.cancel()
        await asyncio.wait([working])
    print(f"Webhooks: {events:,} deliveries to {ENDPOINTS} endpoints, {SUBJECTS} subjects")
    print(f"  {events / seconds:,.0f} per second, {cpu / events * 1e6:.0f} µs CPU of the worker each")
    if events / seconds < TARGET_PER_SECOND:
        print(f"  below the target of {TARGET_PER_SECOND:,} per second")


async def _wait_until_delivered(webhooks: Webhooks, count: int) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            if sum(webhook.delivered for webhook in await webhooks.list_all()) >= count:
                return
            await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000)
    events = parser.parse_known_args()[0].events
    context = multiprocessing.get_context("spawn")
    ready, child = context.Pipe()
    receiver = context.Process(target=_receive, args=(child,), daemon=True)
    receiver.start()
    try:
        with running_server() as server, tempfile.TemporaryDirectory() as folder:
            uvloop.run(_deliver(server.url, Path(folder), ready.recv(), events))
    finally:
        receiver.terminate()
        receiver.join()


if __name__ == "__main__":
    main()
