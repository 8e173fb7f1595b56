"""Measures one API process at ten times its capacity: how much it still answers, and how fast.

The load is open: requests come at a fixed rate, whether or not earlier ones are answered. Each is sent on an idle
connection, of which there are as many as one address may open; if none is idle it fails, as in a proxy. Its time counts
from when it should have been sent. Beside it, a probe asks for `/healthz` ten times a second. Then 500 connections
repeat requests as fast as they are answered.

    python -m bench overload
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx
import uvloop

from tests.processes import ServerProcess

POSTS, SECONDS, OVERLOAD = 300, 6, 10
CAPACITY_CONNECTIONS, MANY_CONNECTIONS, MAX_CONNECTIONS = 16, 500, 1_000
PATHS = ("/app", "/feed/explore?limit=50", "/app/search?q=post", "/users/ana/posts?limit=50")
# Requests that are due are sent so often.
STEP_SECONDS = 0.005


class LoadConnection(asyncio.Protocol):
    """A persistent connection that carries one request at a time."""

    def __init__(self) -> None:
        self.buffer = b""
        self.response: asyncio.Future[int] | None = None
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes) -> asyncio.Future[int]:
        """Send a request. The result is the status of its response."""
        self.response = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.response

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.find(b"content-length: ") + 16
        if len(self.buffer) >= head + 4 + int(self.buffer[at : self.buffer.find(b"\r\n", at)]):
            status, self.buffer = int(self.buffer[9:12]), b""
            if self.response is not None and not self.response.done():
                self.response.set_result(status)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        if self.response is not None and not self.response.done():
            self.response.set_result(0)


class Load:
    """Sends requests to a port and records their status and time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._requests = [f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode() for path in PATHS]
        self._idle: deque[LoadConnection] = deque()
        self.sent = 0
        self.offered = 0  # with those that found no connection
        self.statuses: Counter[int] = Counter()
        self.served_seconds: list[float] = []

    async def closed(self, connections: int, seconds: float) -> None:
        """Repeat requests on some connections, each as soon as the one before is answered."""
        end = time.perf_counter() + seconds

        async def repeat() -> None:
            while time.perf_counter() < end:
                await self._send(time.perf_counter())

        await asyncio.gather(*(repeat() for _ in range(connections)))

    async def open(self, per_second: float, seconds: float) -> None:
        """Send requests at a rate, whether or not earlier ones are answered."""
        for _ in range(MAX_CONNECTIONS):
            self._idle.append(await self._open())
        start, tasks = time.perf_counter(), set[asyncio.Task[None]]()
        while (elapsed := time.perf_counter() - start) < seconds:
            while self.offered < elapsed * per_second:
                self.offered += 1
                if len(tasks) < MAX_CONNECTIONS:
                    task = asyncio.create_task(self._send(start + self.offered / per_second))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            await asyncio.sleep(STEP_SECONDS)
        await asyncio.gather(*tasks)

    async def _send(self, due: float) -> None:
        connection = await self._connection()
        status = await connection.send(self._requests[self.sent % len(self._requests)])
        self.sent += 1
        self.statuses[status] += 1
        if status == 200:
            self.served_seconds.append(time.perf_counter() - due)
        if not connection.is_closed:
            self._idle.append(connection)

    async def _connection(self) -> LoadConnection:
        while self._idle:
            connection = self._idle.popleft()
            if not connection.is_closed:
                return connection
        return await self._open()

    async def _open(self) -> LoadConnection:
        _, connection = await asyncio.get_running_loop().create_connection(LoadConnection, "127.0.0.1", self._port)
        return connection


async def probe_health(port: int) -> None:
    """Ask for `/healthz` ten times a second until cancelled, and print the slowest response."""
    slowest = 0.0
    try:
        while True:
            started = time.perf_counter()
            _, connection = await asyncio.get_running_loop().create_connection(LoadConnection, "127.0.0.1", port)
            status = await connection.send(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert status == 200, f"/healthz was answered with {status}"
            connection.transport.close()
            slowest = max(slowest, time.perf_counter() - started)
            await asyncio.sleep(0.1)
    finally:
        print(f"    /healthz: at most {slowest * 1000:.0f} ms")


async def measured(port: int, title: str, run: Awaitable[None], load: Load, capacity: float | None = None) -> float:
    """Run a load and print what was answered. Returns responses with 200 per second."""
    probe = asyncio.create_task(probe_health(port))
    started = time.perf_counter()
    await run
    seconds = time.perf_counter() - started
    served, times = load.statuses[200] / seconds, sorted(load.served_seconds)
    share = f", {served / capacity:.0%} of the capacity" if capacity else ""
    print(
        f"  {title}: {(load.offered or load.sent) / seconds:,.0f} requests/s, "
        f"{load.sent / seconds:,.0f} sent, {served:,.0f} served{share}"
    )
    print(
        f"    p50 {times[len(times) // 2] * 1000:.0f} ms, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms, "
        f"max {times[-1] * 1000:.0f} ms; by status {dict(load.statuses)}"
    )
    probe.cancel()
    await asyncio.wait({probe})
    return served


async def run(port: int) -> None:
    warm = Load(port)
    await warm.closed(CAPACITY_CONNECTIONS, 1)
    before = Load(port)
    capacity = await measured(port, "capacity", before.closed(CAPACITY_CONNECTIONS, SECONDS), before)
    over = Load(port)
    await measured(port, f"{OVERLOAD} × the capacity", over.open(capacity * OVERLOAD, SECONDS), over, capacity)
    many = Load(port)
    await measured(port, f"{MANY_CONNECTIONS} connections", many.closed(MANY_CONNECTIONS, SECONDS), many, capacity)


@contextmanager
def loaded_server(**settings: str) -> Iterator[ServerProcess]:
    """A server with some users and posts, without rate limits."""
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder) / "var", nohup=False, python=None, PLAZA_RATE_LIMITS="off", **settings)
        try:
            server.wait_for("Ctrl-C stops it.")
            key = (server.data_dir / "api-key").read_text().strip()
            now_ms = int(time.time() * 1000)
            users = [{"username": "ana", "display_name": "Ana"}]
            posts = [
                {"id": f"p{n}", "username": "ana", "content": f"Post {n} #tag{n % 7}", "created_at": now_ms - n * 1000}
                for n in range(POSTS)
            ]
            for path, records in (("/sync/users", users), ("/sync/posts", posts)):
                sent = httpx.post(
                    server.url + path, content=json.dumps(records), headers={"x-api-key": key}, timeout=60
                )
                sent.raise_for_status()
            yield server
        finally:
            server.stop()


def main() -> None:
    for title, queue_ms in (("Overload", "400"), ("Overload, without admission control", "0")):
        print(title)
        with loaded_server(PLAZA_QUEUE_MS=queue_ms) as server:
            uvloop.run(run(int(server.url.rpartition(":")[2])))
        print()
