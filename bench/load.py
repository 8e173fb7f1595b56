"""A cheap load generator for HTTP/1.1: repeats requests on many persistent connections."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import psutil
import uvloop

Requests = bytes | Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Measured:
    """The time and CPU time that a server process spent on some requests."""

    requests: int
    seconds: float
    cpu_seconds: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.requests * 1e6

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


class LoadClient(asyncio.Protocol):
    """Sends a request, waits for the complete response, and sends the next."""

    def __init__(self, requests: Iterator[bytes], expect: bytes) -> None:
        self.requests, self.expect = requests, expect
        self.responses, self.left, self.buffer = 0, 0, b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def start(self, count: int) -> None:
        self.left = count
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        assert self.buffer.startswith(self.expect), self.buffer
        length = self.buffer[: head + 2].lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        if len(self.buffer) < head + 4 + int(length):
            return
        self.buffer = b""
        self.responses += 1
        if self.responses < self.left:
            self.transport.write(next(self.requests))
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))


def post(path: str, body: bytes, *headers: str) -> bytes:
    return request("POST", path, body, *headers)


def request(method: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", "accept: */*"]
    lines += ["user-agent: bench", "accept-encoding: gzip", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def fetch(port: int, request: bytes) -> bytes:
    """Send one request and return the response, headers included. It must have a length."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        received = b""
        while True:
            received += connection.recv(65_536)
            head, _, body = received.partition(b"\r\n\r\n")
            length = head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
            if length and len(body) >= int(length):
                return received


async def load(port: int, request: Requests, expect: bytes, requests: int, connections: int = 64) -> None:
    """Send one request repeatedly, or several in turn, distributed over the connections."""
    turn = itertools.cycle([request] if isinstance(request, bytes) else request)
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(min(connections, requests)):
        _, client = await loop.create_connection(lambda: LoadClient(turn, expect), "127.0.0.1", port)
        clients.append(client)
    share, rest = divmod(requests, len(clients))
    for i, client in enumerate(clients):
        client.start(share + (i < rest))
    await asyncio.gather(*(client.done for client in clients))
    for client in clients:
        client.transport.close()


@contextlib.contextmanager
def server(*command: str, **environment: str) -> Iterator[tuple[int, psutil.Process]]:
    """Start a Python server that takes its port as last argument. Yields the port and the process."""
    with listening((sys.executable, *command), **environment) as running:
        yield running


@contextlib.contextmanager
def listening(command: Sequence[str], **environment: str) -> Iterator[tuple[int, psutil.Process]]:
    """Start a server that takes its port as last argument or as PLAZA_PORT, without its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    own = "plaza" in command
    arguments = command if own else (*command, str(port))
    variables = os.environ | environment | ({"PLAZA_PORT": str(port)} if own else {})
    with subprocess.Popen(arguments, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert child.poll() is None, command
                assert time.monotonic() < deadline, command
                time.sleep(0.05)
            yield port, psutil.Process(child.pid)
        finally:
            child.terminate()


def cpu_seconds(process: psutil.Process) -> float:
    """The CPU time of a process in nanoseconds' precision: Linux's other counter has steps of 10 ms."""
    if sys.platform != "linux":
        times = process.cpu_times()
        return float(times.user + times.system)
    clock_of_process = (~process.pid << 3) | 2  # as clock_getcpuclockid(3) computes it
    return time.clock_gettime(clock_of_process)


def measure(port: int, process: psutil.Process, request: Requests, expect: bytes, requests: int) -> Measured:
    """Load a server and measure its process."""
    before, started = process.cpu_times(), time.perf_counter()
    uvloop.run(load(port, request, expect, requests))
    spent = process.cpu_times()
    cpu = spent.user + spent.system - before.user - before.system
    return Measured(requests, time.perf_counter() - started, cpu)
