"""Measures what a request of a mixed load costs, with more API processes and more cluster primaries.

The same requests as in `bench.soak` go in turns to services on one Valkey, with one and with two API processes, and on
clusters of three and six primaries. CPU counts, not wall time. Timers run meanwhile; the last column is what they cost
per request if they cost as much as in an idle service. On the largest cluster Valkey then says which slots cost most,
so the hot keys are known. Capacity and the arithmetic of docs/scaling.md follow from the same run.

    python -m bench scaling [--store]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from uuid import uuid4

import httpx
import psutil
import uvloop

from bench.capacity import capacity, communities
from bench.load import cpu_seconds
from bench.page import ROOT, Check, markdown_table, store_section
from bench.soak import MixedLoad
from plaza.worker import SETTLE_SECONDS
from tests.processes import ServerProcess
from tests.servers import Cluster, Server, running_cluster, running_server

REQUESTS = int(os.environ.get("BENCH_SCALING_REQUESTS", "1200"))  # per round
SCALING_PAGE = ROOT / "docs/scaling.md"
FEED_MEMBERS = 500_000
ROUNDS, CALLERS, HOT_SLOTS = 3, 16, 8
# The longest interval of the timers that cost most: a shorter time would have them or not.
IDLE_SECONDS = float(SETTLE_SECONDS)
ONE, TWO_WORKERS, THREE, SIX = (
    "1 primary, 1 API process",
    "1 primary, 2 API processes",
    "3 primaries, 1 API process",
    "6 primaries, 1 API process",
)
MAX_GROWTH = {TWO_WORKERS: 0.10, THREE: 0.60}


@dataclass
class Installation:
    """A service, its Valkey, and the CPU time that its requests cost."""

    name: str
    server: ServerProcess
    primaries: list[Server]
    load: MixedLoad
    idle: tuple[float, float] = (0.0, 0.0)  # CPU seconds per second of the service and of Valkey
    service_us: list[float] = field(default_factory=list)
    valkey_us: list[float] = field(default_factory=list)
    idle_us: list[float] = field(default_factory=list)
    largest_share: list[float] = field(default_factory=list)  # of the busiest primary

    def cpu_seconds(self) -> tuple[float, list[float]]:
        """The CPU time of the service's processes, and of each primary."""
        parent = psutil.Process(self.server.process.pid)
        service = sum(cpu_seconds(process) for process in (parent, *parent.children(recursive=True)))
        return service, [cpu_seconds(psutil.Process(node.process.pid)) for node in self.primaries if node.process]

    async def measure_idle(self) -> None:
        before, started = self.cpu_seconds(), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        after, seconds = self.cpu_seconds(), time.monotonic() - started
        self.idle = (after[0] - before[0]) / seconds, (sum(after[1]) - sum(before[1])) / seconds

    async def measure(self) -> None:
        before, started = self.cpu_seconds(), time.monotonic()
        left = iter(range(REQUESTS))

        async def caller() -> None:
            for _ in left:
                await self.load.send_one()

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        after, seconds = self.cpu_seconds(), time.monotonic() - started
        nodes = [now - then for now, then in zip(after[1], before[1], strict=True)]
        self.service_us.append((after[0] - before[0]) / REQUESTS * 1e6)
        self.valkey_us.append(sum(nodes) / REQUESTS * 1e6)
        self.idle_us.append(sum(self.idle) * seconds / REQUESTS * 1e6)
        self.largest_share.append(max(nodes) / max(sum(nodes), 1e-9))

    def total_us(self) -> list[float]:
        """The CPU per request in each round, without that of the timers."""
        parts = zip(self.service_us, self.valkey_us, self.idle_us, strict=True)
        return [service + valkey - idle for service, valkey, idle in parts]

    def cells(self) -> list[str]:
        micros = [f"{median(each):,.0f}" for each in (self.service_us, self.valkey_us)]
        return [self.name, *micros, f"{median(self.largest_share):.0%}", f"{median(self.idle_us):,.0f}"]


HEAD = ("installation", "service, µs", "Valkey, all primaries, µs", "busiest primary", "timers, µs")


def check_growth_of(each: Installation, one: Installation) -> Check:
    growth = median(more / less for more, less in zip(each.total_us(), one.total_us(), strict=True)) - 1
    limit = MAX_GROWTH[each.name]
    return Check(each.name, f"{growth:+.0%} CPU per request", f"at most {limit:+.0%}", growth <= limit)


@contextmanager
def serving(name: str, place: Server | Cluster, workers: int, http: httpx.AsyncClient) -> Iterator[Installation]:
    secret, api_key = "s" * 32, "k" * 32
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "PLAZA_VALKEY_URL": place.url,
            "PLAZA_WORKERS": str(workers),
            "PLAZA_JWT_SECRET": secret,
            "PLAZA_API_KEY": api_key,
            "PLAZA_RATE_LIMITS": "off",
        }
        server = ServerProcess(Path(folder) / "var", nohup=False, python=None, **settings)
        try:
            http.base_url = httpx.URL(server.wait_for("Ctrl-C stops it.").url)
            primaries = place.nodes[: place.primaries] if isinstance(place, Cluster) else [place]
            yield Installation(name, server, primaries, MixedLoad(http, secret, api_key))
        finally:
            server.stop()


def hot_slots(cluster: Cluster) -> list[tuple[float, str]]:
    """The slots that cost Valkey most, as a share of all, each with one of its keys."""
    found, total = list[tuple[float, str]](), 0.0
    for node in cluster.nodes[: cluster.primaries]:
        with node.redis_client() as client:
            rows = client.execute_command("CLUSTER", "SLOT-STATS", "ORDERBY", "cpu-usec", "LIMIT", 16384)
            for slot, statistics in rows:
                cost = _statistic(statistics, "cpu-usec")
                total += cost
                keys = client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1) if cost else []
                found.append((cost, str(keys[0]) if keys else f"slot {slot}"))
    return [(cost / total, key) for cost, key in sorted(found, reverse=True)[:HOT_SLOTS]]


def _statistic(statistics: object, name: str) -> float:
    pairs = statistics.items() if isinstance(statistics, dict) else zip(*[iter(statistics)] * 2, strict=True)  # type: ignore[call-overload]
    return float(dict(pairs)[name])


async def measure(*, store: bool) -> None:
    with ExitStack() as stack:
        one, two = (stack.enter_context(running_server()) for _ in range(2))
        three, six = (stack.enter_context(running_cluster(count)) for count in (3, 6))
        places = (
            (ONE, one, 1),
            (TWO_WORKERS, two, 2),
            (THREE, three, 1),
            (SIX, six, 1),
        )
        installations = []
        for name, place, workers in places:
            http = httpx.AsyncClient(timeout=60, verify=False)
            installations.append(stack.enter_context(serving(name, place, workers, http)))
            await installations[-1].load.prepare()
        for each in installations:
            await each.measure()  # warm-up of caches
            for figures in (each.service_us, each.valkey_us, each.idle_us, each.largest_share):
                figures.clear()
            await each.measure_idle()
        for node in six.nodes:
            with node.redis_client() as client:
                client.config_set("cluster-slot-stats-enabled", "yes")
        for _ in range(ROUNDS):
            for each in installations:
                await each.measure()
        for each in installations:
            failed = {status: count for status, count in each.load.statuses.items() if status >= 400}
            if failed:
                print(f"{each.name} failed: {failed}")
        checks = [check_growth_of(each, installations[0]) for each in installations if each.name in MAX_GROWTH]
        table = markdown_table(HEAD, [each.cells() for each in installations])
        table += "\n" + markdown_table(
            ("", f"beside {ONE}", "goal", ""), [[each.name, each.figures, each.goal, each.verdict] for each in checks]
        )
        table += _consequences(installations, _feed_member_bytes(one))
        slots = [[f"`{key}`", f"{share:.1%}"] for share, key in hot_slots(six)]
        table += "\nThe slots of six primaries that cost most, each with one of its keys:\n\n"
        table += markdown_table(("key", "of Valkey's CPU"), slots)
        print(table)
        if store:
            store_section("scaling", table, SCALING_PAGE)


def _consequences(installations: Sequence[Installation], feed_member_bytes: float) -> str:
    costs = {each.name: (median(each.service_us), median(each.valkey_us)) for each in installations}
    text = "\nRequests per second of this load, at these costs:\n\n" + capacity(costs)
    return text + "\nThe communities below, on a cluster of six:\n\n" + communities(*costs[SIX], feed_member_bytes)


def _feed_member_bytes(server: Server) -> float:
    """What a post takes in a large feed: a UUID in a sorted set."""
    with server.redis_client() as client:
        for first in range(0, FEED_MEMBERS, 10_000):
            client.zadd("bench:feed", {str(uuid4()): time.time_ns() // 10**6 + n for n in range(first, first + 10_000)})
        return int(client.memory_usage("bench:feed", samples=0) or 0) / FEED_MEMBERS


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench scaling")
    parser.add_argument("--store", action="store_true", help="show this run in docs/scaling.md")
    uvloop.run(measure(store=parser.parse_args(arguments).store))


if __name__ == "__main__":
    main(sys.argv[1:])
