"""Measures one API process at ten times its capacity: how much it still answers, and how fast.

The load is open: requests are sent at a fixed rate, whether or not earlier ones are answered, each on an idle
connection. A response is held back for a second at most, so there are as many connections as are sent in that time and
some more; one that finds none idle is not sent, and counted. The same load is repeated on the connections that one
address may open, as a proxy does. A time counts from when the request should have been sent.
Beside it, a probe asks for `/healthz` ten times a second on new connections. Then 500 connections repeat requests as
fast as they are answered. The capacity is measured before and after. Use an idle machine with two cores or more;
elsewhere only the share per CPU second says something. It takes a minute and a half:

    python -m bench overload [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Final, NamedTuple, cast

import httpx
import psutil
import uvloop

from plaza.core.settings import Settings
from tests.processes import ServerProcess

POSTS: Final = 300
SECONDS: Final = 8.0
OVERLOAD: Final = 10
CAPACITY_CONNECTIONS, MANY_CONNECTIONS = 16, 500
# Half of the file descriptors that are usual on a server are for connections.
MAX_CONNECTIONS: Final = 9_000
PATHS: Final = ("/app", "/feed/explore?limit=50", "/app/search?q=post", "/users/ana/posts?limit=50")
# Requests that are due are sent so often.
STEP_SECONDS: Final = 0.002


class LoadConnection(asyncio.Protocol):
    """A persistent connection that carries one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._responded: Callable[[LoadConnection, int], None] | None = None
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: bytes, responded: Callable[[LoadConnection, int], None]) -> None:
        """Send a request. `responded` is called with the status of its response, or 0 if there is none."""
        self._responded = responded
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.find(b"content-length: ") + 16
        if len(self._buffer) >= head + 4 + int(self._buffer[at : self._buffer.find(b"\r\n", at)]):
            status, self._buffer = int(self._buffer[9:12]), b""
            self._respond(status)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._respond(0)

    def _respond(self, status: int) -> None:
        responded, self._responded = self._responded, None
        if responded is not None:
            responded(self, status)


async def connect(port: int) -> LoadConnection:
    _, connection = await asyncio.get_running_loop().create_connection(LoadConnection, "127.0.0.1", port)
    return connection


@dataclass
class OverloadResult:
    """What was sent, and how it was answered."""

    sent: int = 0
    not_sent: int = 0  # no connection was idle
    statuses: Counter[int] = field(default_factory=Counter)
    served_seconds: list[float] = field(default_factory=list)


class Throughput(NamedTuple):
    """Responses with 200 per second, and per CPU second of the service."""

    served: float
    served_per_cpu: float


class Load:
    """Sends requests to a port on some connections."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._requests = [f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode() for path in PATHS]
        self._idle: deque[LoadConnection] = deque()
        self._end = 0.0
        self.result = OverloadResult()

    async def connect(self, count: int) -> None:
        while len(self._idle) < count:
            self._idle.extend(await asyncio.gather(*(connect(self._port) for _ in range(50))))

    async def closed(self, seconds: float) -> None:
        """Repeat requests on all connections, each as soon as the one before is answered."""
        self._end = time.perf_counter() + seconds
        while self._idle:
            self._send(time.perf_counter(), self._repeat)
        await asyncio.sleep(seconds)

    async def open(self, per_second: float, seconds: float) -> None:
        """Send requests at a rate, whether or not earlier ones are answered."""
        start, due = time.perf_counter(), 0
        self._end = start + seconds
        while (elapsed := time.perf_counter() - start) < seconds:
            while due < elapsed * per_second:
                due += 1
                if self._idle:
                    self._send(start + due / per_second, self._idle.append)
                else:
                    self.result.not_sent += 1
            await asyncio.sleep(STEP_SECONDS)

    def disconnect(self) -> None:
        while self._idle:
            self._idle.popleft().transport.close()

    def _repeat(self, connection: LoadConnection) -> None:
        self._idle.append(connection)
        self._send(time.perf_counter(), self._repeat)

    def _send(self, due: float, then: Callable[[LoadConnection], Any]) -> None:
        request = self._requests[self.result.sent % len(self._requests)]
        self.result.sent += 1
        self._idle.popleft().send(request, partial(self._responded, due, then))

    def _responded(self, due: float, then: Callable[[LoadConnection], Any], to: LoadConnection, status: int) -> None:
        now = time.perf_counter()
        if now > self._end:  # neither rates nor times count what comes later; it was sent nearly in time
            then = self._idle.append
        else:
            self.result.statuses[status] += 1
            if status == 200:
                self.result.served_seconds.append(now - due)
        if not to.is_closed:
            then(to)


async def probe_health(port: int) -> None:
    """Ask for `/healthz` ten times a second until cancelled, and print the slowest response."""
    times, started = [0.0], None
    request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    try:
        while True:
            started = time.perf_counter()
            connection, statuses = await connect(port), asyncio.Queue[int]()
            connection.send(request, lambda _, status, statuses=statuses: statuses.put_nowait(status))  # type: ignore[misc]
            status = await statuses.get()
            assert status == 200, f"/healthz was answered with {status}"
            connection.transport.close()
            times.append(time.perf_counter() - started)
            started = None
            await asyncio.sleep(0.1)
    finally:
        if started is not None:  # not answered yet
            times.append(time.perf_counter() - started)
        print(f"    /healthz: at most {max(times) * 1000:.0f} ms, {len(times) - 1} times")


def cpu_seconds(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


class OverloadBench:
    """Runs loads on one server, and prints what was answered."""

    def __init__(self, server: ServerProcess, seconds: float) -> None:
        self._port = int(server.url.rpartition(":")[2])
        self._server = psutil.Process(server.process.pid)
        self._seconds = seconds

    async def run(self) -> None:
        capacity = await self._closed("capacity", CAPACITY_CONNECTIONS)
        rate, usual = capacity.served * OVERLOAD, Settings().connections_per_address
        over = await self._open(f"{OVERLOAD} × the capacity", rate, MAX_CONNECTIONS)
        limited = await self._open(f"{OVERLOAD} × the capacity on {usual} connections", rate, usual)
        many = await self._closed(f"{MANY_CONNECTIONS} connections", MANY_CONNECTIONS)
        again = await self._closed("capacity again", CAPACITY_CONNECTIONS)
        for title, found in (
            ("open loop", over),
            (f"open loop, {usual} connections", limited),
            (f"{MANY_CONNECTIONS} connections", many),
        ):
            share = found.served / mean((capacity.served, again.served))
            per_cpu = found.served_per_cpu / mean((capacity.served_per_cpu, again.served_per_cpu))
            print(f"  {title}: serves {share:.0%} of the capacity, {per_cpu:.0%} per CPU second of the service")

    async def _closed(self, title: str, connections: int) -> Throughput:
        load = Load(self._port)
        await load.connect(connections)
        return await self._measured(title, load, load.closed(self._seconds))

    async def _open(self, title: str, per_second: float, connections: int) -> Throughput:
        load = Load(self._port)
        await load.connect(min(connections, int(per_second * 1.5)))
        return await self._measured(title, load, load.open(per_second, self._seconds))

    async def _measured(self, title: str, load: Load, run: Awaitable[None]) -> Throughput:
        probe, own = asyncio.create_task(probe_health(self._port)), psutil.Process()
        before, own_before = cpu_seconds(self._server), cpu_seconds(own)
        await run
        found, seconds = load.result, self._seconds
        cpu, own_cpu = cpu_seconds(self._server) - before, cpu_seconds(own) - own_before
        times = sorted(found.served_seconds) or [0.0]
        print(f"  {title}: {found.sent / seconds:,.0f} requests/s sent, {found.not_sent / seconds:,.0f} not sent")
        print(f"    {found.statuses[200] / seconds:,.0f} served; by status {dict(found.statuses)}")
        print(
            f"    p50 {times[len(times) // 2] * 1000:.0f} ms, p99 {times[len(times) * 99 // 100] * 1000:.0f} ms, "
            f"max {times[-1] * 1000:.0f} ms; CPU: service {cpu / seconds:.0%}, load {own_cpu / seconds:.0%} of a core"
        )
        probe.cancel()
        await asyncio.wait({probe})
        await asyncio.sleep(1.5)  # refusals are held back for a second
        load.disconnect()
        return Throughput(found.statuses[200] / seconds, found.statuses[200] / cpu)


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


def main(arguments: Sequence[str] = ()) -> None:
    seconds = float(arguments[0]) if arguments else SECONDS
    for title, queue_ms in (("Overload", "400"), ("Overload, without admission control", "0")):
        print(title)
        settings = {"PLAZA_QUEUE_MS": queue_ms, "PLAZA_CONNECTIONS_PER_ADDRESS": str(MAX_CONNECTIONS + 100)}
        with loaded_server(**settings) as server:
            uvloop.run(OverloadBench(server, seconds).run())
        print()
