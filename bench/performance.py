"""The CPU of every path beside the peers: `python -m bench performance [--quick] [PATH …]`.

Plaza and each peer have a Valkey of their own with the same data. They take turns, round by round, on 32 connections.
CPU is that of the service and of its Valkey per request; the median of the rounds counts. docs/performance.md says what
the peers are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import median

import psutil
import uvloop

from bench.community import API_KEY, SECRET, BenchCommunity, copy_keys
from bench.load import cpu_seconds, listening, load
from bench.paths import BOOK, CONNECTIONS, FASTAPI, NODE, NODE_FRESH, NODE_TUNED, PLAZA, RequestPath, path_groups
from tests.servers import Server, running_server

HERE = Path(__file__).parent
REQUESTS, ROUNDS = 1_280, 3
SETTLE_SECONDS, IDLE_SHARE = 30.0, 0.04  # at most so long, until it takes less than this share of a core
QUICK_REQUESTS, QUICK_ROUNDS = 320, 1


@dataclass(frozen=True)
class Contender:
    """A running service with its own Valkey."""

    name: str
    port: int
    process: psutil.Process
    valkey: Server
    prefix: str = ""  # of its routes

    def cpu_seconds(self) -> tuple[float, float]:
        """The CPU time of the service and of its Valkey so far."""
        assert self.valkey.process is not None
        service = sum(cpu_seconds(process) for process in (self.process, *self.process.children(recursive=True)))
        return service, cpu_seconds(psutil.Process(self.valkey.process.pid))

    def settle(self) -> None:
        """Wait until the jobs that follow writes (events, notifications, search) have little left to do."""
        deadline, (service, valkey) = time.monotonic() + SETTLE_SECONDS, self.cpu_seconds()
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
            self._send(list(dict.fromkeys(requests)), path.expect)
        before = self.cpu_seconds()
        self._send(requests, path.expect)
        after = self.cpu_seconds()
        service, valkey = ((now - then) / len(requests) * 1e6 for now, then in zip(after, before, strict=True))
        if path.writes and self.name == PLAZA:
            self.settle()
        later = (sum(self.cpu_seconds()) - sum(after)) / len(requests) * 1e6
        return PathCost(service, valkey, later)

    def _send(self, requests: list[bytes], expect: bytes) -> None:
        padding = -len(requests) % CONNECTIONS
        every = requests + requests[:1] * padding
        uvloop.run(load(self.port, every, expect, len(every), CONNECTIONS))


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
class Row:
    """The median cost of one path for each contender, and how many times Plaza's a peer's is."""

    path: RequestPath
    costs: dict[str, PathCost]
    ratios: dict[str, float]


@contextmanager
def contenders(community: BenchCommunity, names: set[str]) -> Iterator[dict[str, Contender]]:
    """Start Plaza and the wanted peers, with the same data."""
    with ExitStack() as stack:
        data = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        found = {PLAZA: stack.enter_context(serving_plaza(Path(data)))}
        community.fill(found[PLAZA].port)
        found[PLAZA].settle()
        for name, command, settings in (
            (NODE, ("node", str(HERE / "peers/node/social.js")), {"CACHE_SECONDS": "30"}),
            (NODE_FRESH, ("node", str(HERE / "peers/node/social.js")), {"CACHE_SECONDS": "0"}),
            (NODE_TUNED, ("node", str(HERE / "peers/node/social.js")), {"CACHE_SECONDS": "0", "TUNED": "1"}),
            (FASTAPI, (sys.executable, "-m", "bench.peers.fastapi_server"), {}),
        ):
            if name in names or (name == FASTAPI and BOOK in names):
                valkey = stack.enter_context(running_server())
                copy_keys(found[PLAZA].valkey.port, valkey.port)
                settings |= {"REDIS_URL": f"redis://127.0.0.1:{valkey.port}", "JWT_SECRET": SECRET}
                running = stack.enter_context(listening(command, NODE_ENV="production", **settings))
                found[name] = Contender(name, *running, valkey)
        if FASTAPI in found:
            service = found[FASTAPI]
            found[BOOK] = Contender(BOOK, service.port, service.process, service.valkey, "/book")
        yield found


@contextmanager
def serving_plaza(data: Path, **more: str) -> Iterator[Contender]:
    """Run `plaza serve` on a Valkey of its own, complete and with its log, but without rate limits."""
    with running_server() as valkey:
        settings = {"PLAZA_DATA_DIR": str(data), "PLAZA_VALKEY_URL": valkey.url, "PLAZA_JWT_SECRET": SECRET}
        settings |= {"PLAZA_API_KEY": API_KEY, "PLAZA_RATE_LIMITS": "off", "PLAZA_QUEUE_MS": "0"}
        with listening((sys.executable, "-m", "plaza", "serve", "--empty"), **settings, **more) as running:
            yield Contender(PLAZA, *running, valkey)


def measure_group(group: list[RequestPath], running: dict[str, Contender], rounds: int) -> list[Row]:
    """Measure the paths of a group in turns. The first round warms up."""
    costs: dict[tuple[str, str], list[PathCost]] = {}
    for round in range(rounds + 1):
        for name in (PLAZA, *group[0].peers):
            for path in group:
                cost = running[name].measure(path, round)
                if round:
                    costs.setdefault((path.name, name), []).append(cost)
    return [_row(path, {name: costs[path.name, name] for name in (PLAZA, *path.peers)}) for path in group]


def _row(path: RequestPath, costs: dict[str, list[PathCost]]) -> Row:
    medians = {
        name: PathCost(*(median(part) for part in zip(*map(astuple, each), strict=True)))
        for name, each in costs.items()
    }
    own = costs[PLAZA]
    ratios = {
        name: median(theirs.total / mine.total for theirs, mine in zip(each, own, strict=True))
        for name, each in costs.items()
        if name != PLAZA
    }
    return Row(path, medians, ratios)


PEERS = (NODE, NODE_FRESH, NODE_TUNED, FASTAPI, BOOK)


def print_head() -> None:
    print("CPU per request of service + Valkey in µs; × is a peer's total divided by Plaza's")
    print(f"{'':26}{PLAZA:>11}{'later':>7}" + "".join(f"{name:>20}" for name in PEERS) + "  goal")


def print_row(row: Row) -> None:
    line = f"{row.path.name:26}{_cell(row.costs[PLAZA]):>11}{row.costs[PLAZA].later:7.0f}"
    for name in PEERS:
        cell = f"{_cell(row.costs[name])} {row.ratios[name]:6.1f} ×" if name in row.costs else ""
        line += f"{cell:>20}"
    for name, goal in row.path.goals:
        line += f"  {goal:g} × {name}: {'met' if row.ratios[name] >= goal else 'NOT MET'}"
    print(line, flush=True)


def _cell(cost: PathCost) -> str:
    return f"{cost.service:.0f}+{cost.valkey:.0f}"


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench performance", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these paths (default: all)")
    parser.add_argument("--quick", action="store_true", help="few requests and one round: to see that it works")
    parser.add_argument("--rounds", type=int, help=f"default: {ROUNDS}")
    parser.add_argument("--requests", type=int, help=f"per path and round (default: {REQUESTS})")
    options = parser.parse_args(arguments)
    requests = options.requests or (QUICK_REQUESTS if options.quick else REQUESTS)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    community = BenchCommunity()
    groups = path_groups(community, requests)
    known = [path.name for group in groups for path in group]
    if unknown := set(options.paths) - set(known):
        raise SystemExit(f"Unknown path {', '.join(sorted(unknown))}. Choose from {', '.join(known)}.")
    wanted = [group for group in groups if not options.paths or any(path.name in options.paths for path in group)]
    peers = {peer for group in wanted for path in group for peer in path.peers}
    with contenders(community, peers) as running:
        print_head()
        for group in wanted:
            for row in measure_group(group, running, rounds):
                print_row(row)


if __name__ == "__main__":
    main(sys.argv[1:])
