"""Measures what `PLAZA_WAIT_REPLICAS=1` costs a write: `python -m bench replication_wait`.

Two services share a Valkey with a replica, one waits for it. They take turns to create posts, over many connections and
over one. CPU is that of the service and of Valkey; the time of one connection shows what a single client waits.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import httpx
import psutil
import uvloop

from bench.load import cpu_seconds, load, post
from tests.processes import ServerProcess
from tests.servers import SYNC_AT_ONCE, Server, running_server

ROUNDS, REQUESTS, CONNECTIONS = 7, int(os.environ.get("BENCH_WAIT_REQUESTS", "1600")), 32
CREATED = b"HTTP/1.1 201"


class Service:
    """A service, and what each of its rounds took."""

    def __init__(self, replicas: int, server: ServerProcess, primary: Server) -> None:
        assert primary.process is not None
        self.name = f"PLAZA_WAIT_REPLICAS={replicas}"
        self._port = httpx.URL(server.url).port or 0
        self._processes = [psutil.Process(server.process.pid), psutil.Process(primary.process.pid)]
        account = {"username": f"user{replicas}", "password": "a long pass phrase"}
        token = httpx.post(f"{server.url}/auth/register", json=account).raise_for_status().json()["access_token"]
        self._request = post("/posts", b'{"content": "Hello #plaza"}', f"authorization: Bearer {token}")
        self.service_us: list[float] = []
        self.valkey_us: list[float] = []
        self.wait_ms: list[float] = []

    def measure(self) -> None:
        before = [cpu_seconds(process) for process in self._processes]
        uvloop.run(load(self._port, self._request, CREATED, REQUESTS, CONNECTIONS))
        spent = [cpu_seconds(process) - then for process, then in zip(self._processes, before, strict=True)]
        self.service_us.append(spent[0] / REQUESTS * 1e6)
        self.valkey_us.append(spent[1] / REQUESTS * 1e6)
        started, count = time.perf_counter(), REQUESTS // 10
        uvloop.run(load(self._port, self._request, CREATED, count, 1))
        self.wait_ms.append((time.perf_counter() - started) / count * 1e3)


@contextmanager
def serving(replicas: int, primary: Server) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "PLAZA_VALKEY_URL": primary.url,
            "PLAZA_JWT_SECRET": "s" * 32,
            "PLAZA_RATE_LIMITS": "off",
            "PLAZA_WAIT_REPLICAS": str(replicas),
        }
        server = ServerProcess(Path(folder) / "var", nohup=False, python=None, **settings)
        try:
            yield Service(replicas, server.wait_for("Ctrl-C stops it."), primary)
        finally:
            server.stop()


def main() -> None:
    with ExitStack() as stack:
        primary = stack.enter_context(running_server(*SYNC_AT_ONCE))
        stack.enter_context(running_server("--replicaof", "127.0.0.1", str(primary.port)))
        services = [stack.enter_context(serving(replicas, primary)) for replicas in (0, 1)]
        for _ in range(ROUNDS):
            for service in services:
                service.measure()
        for service in services:
            micros = f"{median(service.service_us):,.0f} + {median(service.valkey_us):,.0f} µs"
            print(f"{service.name}: {micros} a post, {median(service.wait_ms):.2f} ms over one connection")


if __name__ == "__main__":
    main()
