"""Plaza and its peers as running services, each with a Valkey of its own and the same data."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import uvloop

from bench.community import API_KEY, SECRET, BenchCommunity, copy_keys
from bench.load import cpu_seconds, fetch, listening, load, request
from bench.paths import BARE, BOOK, CONNECTIONS, FASTAPI, NODE, NODE_FRESH, NODE_TUNED, PLAZA, RequestPath
from tests.servers import Server, running_server

NODE_SERVICE = ("node", str(Path(__file__).parent / "peers/node/social.js"))
IDLE_SECONDS = 5.0
IDLE_SHARE = 0.04  # of a core: what Plaza's timers take at most while it has nothing to do


@dataclass(frozen=True)
class PathCost:
    """CPU per request, in µs."""

    service: float
    valkey: float
    later: float  # by Plaza's jobs, after the last response

    @property
    def total(self) -> float:
        return self.service + self.valkey


@dataclass(frozen=True)
class Contender:
    """A running service with its own Valkey."""

    name: str
    port: int
    process: psutil.Process
    valkey: Server
    prefix: str = ""  # of its routes
    idle_share: float = 0.0  # of a core: what its timers take

    def cpu_seconds(self) -> tuple[float, float]:
        """The CPU time of the service and of its Valkey so far."""
        assert self.valkey.process is not None
        service = sum(cpu_seconds(process) for process in (self.process, *self.process.children(recursive=True)))
        return service, cpu_seconds(psutil.Process(self.valkey.process.pid))

    def settle(self, seconds: float = 30.0) -> None:
        """Wait until the jobs that follow writes (events, notifications, search) have little left to do."""
        deadline, (service, valkey) = time.monotonic() + seconds, self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(0.5)
            before, (service, valkey) = service + valkey, self.cpu_seconds()
            if service + valkey - before < 0.5 * IDLE_SHARE:
                return

    def measure(self, path: RequestPath, round: int) -> PathCost:
        requests = path.requests(round, self.prefix)
        if path.prepare is not None:
            with self.valkey.redis_client() as client:
                path.prepare(client)
        if path.cacheable and self.name == NODE:
            self.send(list(dict.fromkeys(requests)), path.expect)
        before = self.cpu_seconds()
        self.send(requests, path.expect)
        after = self.cpu_seconds()
        service, valkey = ((now - then) / len(requests) * 1e6 for now, then in zip(after, before, strict=True))
        ended = time.monotonic()
        if path.writes and self.name == PLAZA:
            self.settle()
        later = sum(self.cpu_seconds()) - sum(after) - self.idle_share * (time.monotonic() - ended)
        return PathCost(service, valkey, max(later, 0.0) / len(requests) * 1e6)

    def measured_idle(self) -> Contender:
        """The same, with what its timers take in an idle service."""
        before, began = sum(self.cpu_seconds()), time.monotonic()
        time.sleep(IDLE_SECONDS)
        return replace(self, idle_share=(sum(self.cpu_seconds()) - before) / (time.monotonic() - began))

    def send(self, requests: list[bytes], expect: bytes) -> None:
        uvloop.run(load(self.port, requests, expect, len(requests), CONNECTIONS))

    def imitate(self, other: Contender, path: RequestPath, round: int) -> None:
        """Let the bare server give the response of another service to a request of this path."""
        response = fetch(other.port, path.requests(round, other.prefix)[0])
        # What exists already is refused: with the wanted status, in about the same size.
        response = path.expect + response[len(path.expect) :]
        fetch(self.port, request("PUT", "/response", response))


@contextmanager
def contenders(community: BenchCommunity, names: set[str]) -> Iterator[dict[str, Contender]]:
    """Start Plaza and the wanted peers, with the same data."""
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        found = {PLAZA: stack.enter_context(serving_plaza(Path(data), stack.enter_context(running_server())))}
        community.fill(found[PLAZA].port, settings_of(Path(data), found[PLAZA].valkey))
        found[PLAZA].settle()
        found[PLAZA] = found[PLAZA].measured_idle()
        for name, command, settings in (
            (BARE, (sys.executable, "-m", "bench.peers.bare_server"), {}),
            (NODE, NODE_SERVICE, {"CACHE_SECONDS": "30"}),
            (NODE_FRESH, NODE_SERVICE, {"CACHE_SECONDS": "0"}),
            (NODE_TUNED, NODE_SERVICE, {"CACHE_SECONDS": "0", "TUNED": "1"}),
            (FASTAPI, (sys.executable, "-m", "bench.peers.fastapi_server"), {}),
        ):
            if name in names or name == BARE or (name == FASTAPI and BOOK in names):
                valkey = stack.enter_context(running_server())
                if name != BARE:
                    copy_keys(found[PLAZA].valkey.port, valkey.port)
                settings |= {"REDIS_URL": f"redis://127.0.0.1:{valkey.port}", "JWT_SECRET": SECRET}
                running = stack.enter_context(listening(command, NODE_ENV="production", **settings))
                found[name] = Contender(name, *running, valkey)
        if FASTAPI in found:
            service = found[FASTAPI]
            found[BOOK] = Contender(BOOK, service.port, service.process, service.valkey, "/book")
        yield found


@contextmanager
def serving_plaza(data: Path, valkey: Server, **more: str) -> Iterator[Contender]:
    """Run `plaza serve` on this Valkey, complete and with its log, but without rate limits."""
    command = (sys.executable, "-m", "plaza", "serve", "--empty")
    with listening(command, **settings_of(data, valkey), **more) as running:
        yield Contender(PLAZA, *running, valkey)


def settings_of(data: Path, valkey: Server) -> dict[str, str]:
    settings = {"PLAZA_DATA_DIR": str(data), "PLAZA_VALKEY_URL": valkey.url, "PLAZA_JWT_SECRET": SECRET}
    return settings | {"PLAZA_API_KEY": API_KEY, "PLAZA_RATE_LIMITS": "off", "PLAZA_QUEUE_MS": "0"}
