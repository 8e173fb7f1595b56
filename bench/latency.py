"""Latency at half of capacity, and what holds the event loop or Valkey: `python -m bench latency [--store] [PATH …]`.

Times are by the clock, so the machine must be idle. docs/performance.md says what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import uvloop

from bench.community import BenchCommunity
from bench.contenders import Contender, serving_plaza, settings_of
from bench.load import LoadClient, listening
from bench.page import markdown_table, store_section
from bench.paths import CONNECTIONS, PLAZA, RequestPath, path_groups
from tests.servers import Server, running_server

REQUESTS, ROUNDS = 640, 3  # per path and round
SETTLE_SECONDS = 5.0  # at most, after each round of writes: jobs that are not done then are part of the next round
MAX_TIMES_MEDIAN, MAX_HOLD_MS = 5.0, 2.0
SLOW_LOG_US = 500


@dataclass
class PathLatency:
    """What was measured of one path."""

    path: RequestPath
    per_second: float = 0.0  # half of the capacity
    seconds: list[float] = field(default_factory=list)  # per request
    hold_ms: float = 0.0
    holder: str = ""
    command_ms: float = 0.0
    command: str = ""

    def percentiles(self) -> tuple[float, float]:
        cuts = quantiles(self.seconds, n=100)
        return cuts[49] * 1000, cuts[98] * 1000

    def met(self) -> bool:
        p50, p99 = self.percentiles()
        return p99 < MAX_TIMES_MEDIAN * p50 and max(self.hold_ms, self.command_ms) <= MAX_HOLD_MS

    def cells(self) -> list[str]:
        p50, p99 = self.percentiles()
        holds = [f"{self.hold_ms:.1f} {self.holder}", f"{self.command_ms:.1f} {self.command}"]
        verdict = "met" if self.met() else "not met"
        return [
            self.path.name,
            f"{self.per_second:.0f}",
            f"{p50:.2f}",
            f"{p99:.2f}",
            f"{p99 / p50:.1f}",
            *holds,
            verdict,
        ]


HEAD = ("path", "requests/s", "p50 ms", "p99 ms", "p99 ÷ p50", "longest hold ms", "longest command ms", "")


def capacity(plaza: Contender, path: RequestPath, round: int) -> float:
    """How many requests per second the service handles, together with the jobs that follow them."""
    job_seconds, requests, began = 0.0, path.requests(round, ""), perf_counter()
    plaza.send(requests, path.expect)
    seconds = perf_counter() - began
    if path.writes:
        before = sum(plaza.cpu_seconds())
        plaza.settle(SETTLE_SECONDS)
        job_seconds = sum(plaza.cpu_seconds()) - before
    return len(requests) / (seconds + job_seconds)


async def at_rate(port: int, requests: Sequence[bytes], expect: bytes, per_second: float) -> list[float]:
    """Send requests at random times, at this rate on average. Returns the seconds from when each was due.

    A thread waits for these times, and the clock is Python's: uvloop's timers and clock have steps of a millisecond.
    """
    loop, dice = asyncio.get_running_loop(), random.Random(7)
    free: asyncio.LifoQueue[LoadClient] = asyncio.LifoQueue()
    for _ in range(CONNECTIONS):
        _, client = await loop.create_connection(lambda: LoadClient(iter(()), expect), "127.0.0.1", port)
        client.done.set_result(None)  # it has nothing to do yet
        free.put_nowait(client)
    waits = list[float]()

    async def send(request: bytes, due: float) -> None:
        client = await free.get()
        client.requests, client.responses, client.done = iter([request]), 0, loop.create_future()
        client.start(1)
        await client.done
        waits.append(perf_counter() - due)
        free.put_nowait(client)

    def wait_and_send(tasks: asyncio.TaskGroup) -> None:
        due = perf_counter()
        for request in requests:
            due += dice.expovariate(per_second)
            time.sleep(max(due - perf_counter(), 0))
            loop.call_soon_threadsafe(tasks.create_task, send(request, due))

    async with asyncio.TaskGroup() as tasks:
        await asyncio.to_thread(wait_and_send, tasks)
    while not free.empty():
        free.get_nowait().transport.close()
    return waits


def measure_waits(plaza: Contender, group: list[PathLatency]) -> None:
    for each in group:
        plaza.send(each.path.requests(0, ""), each.path.expect)  # warm-up
        plaza.settle(SETTLE_SECONDS)
    for each in group:
        _prepare(plaza, each.path)
        each.per_second = capacity(plaza, each.path, 1) / 2
        print(f"{each.path.name}: {each.per_second:.0f} requests/s", file=sys.stderr, flush=True)
    for round in range(2, 2 + ROUNDS):
        for each in group:
            _prepare(plaza, each.path)
            each.seconds += _at_half_capacity(plaza, each, round)


def measure_holds(plaza: Contender, log: Path, group: list[PathLatency]) -> None:
    """Send the same once more to a monitored server."""
    for round in range(2 + ROUNDS, 4 + ROUNDS):  # the first warms up
        for each in group:
            _prepare(plaza, each.path)
            log.write_text("")
            with plaza.valkey.redis_client() as client:
                client.slowlog_reset()
                _at_half_capacity(plaza, each, round)
                commands: list[Any] = client.slowlog_get(128)
            holds = [json.loads(line) for line in log.read_text().splitlines()]
            longest = max(holds, key=lambda hold: float(hold["ms"]), default=None)
            each.hold_ms, each.holder = (longest["ms"], longest["callback"]) if longest else (0.0, "")
            each.command_ms, each.command = 0.0, ""
            slowest = max(commands, key=lambda command: command["duration"], default=None)
            if slowest is not None:
                each.command_ms = slowest["duration"] / 1000
                each.command = " ".join(_text(slowest["command"]).split()[:2])


def _text(command: bytes | str) -> str:
    return command.decode(errors="replace") if isinstance(command, bytes) else command


def _prepare(plaza: Contender, path: RequestPath) -> None:
    if path.prepare is not None:
        with plaza.valkey.redis_client() as client:
            path.prepare(client)


def _at_half_capacity(plaza: Contender, each: PathLatency, round: int) -> list[float]:
    requests = each.path.requests(round, "")
    if not each.path.writes and each.path.prepare is None:
        requests *= ceil(each.per_second / len(requests))  # for a second at least
    waits = uvloop.run(at_rate(plaza.port, requests, each.path.expect, each.per_second))
    if each.path.writes:
        plaza.settle(SETTLE_SECONDS)
    return waits


@contextmanager
def monitored_plaza(data: Path, valkey: Server, log: Path) -> Iterator[Contender]:
    command = (sys.executable, "-m", "bench.monitored_plaza", "plaza", str(log))
    with valkey.redis_client() as client:
        client.config_set("slowlog-log-slower-than", SLOW_LOG_US)
    with listening(command, **settings_of(data, valkey)) as running:
        yield Contender(PLAZA, *running, valkey)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench latency")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these paths (default: all)")
    parser.add_argument("--store", action="store_true", help="show this run in docs/performance.md")
    options = parser.parse_args(arguments)
    community = BenchCommunity()
    groups = [
        [PathLatency(path) for path in group]
        for group in path_groups(community, REQUESTS)
        if not options.paths or any(path.name in options.paths for path in group)
    ]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, running_server() as valkey:
        data, log = Path(folder) / "data", Path(folder) / "holds.jsonl"
        with serving_plaza(data, valkey) as plaza:
            community.fill(plaza.port, settings_of(data, valkey))
            plaza.settle(SETTLE_SECONDS)
            for group in groups:
                measure_waits(plaza, group)
        with monitored_plaza(data, valkey, log) as plaza:
            plaza.settle(SETTLE_SECONDS)
            for group in groups:
                measure_holds(plaza, log, group)
                for each in group:
                    print(" | ".join(each.cells()), file=sys.stderr, flush=True)
    rows = [each.cells() for group in groups for each in group]
    print(markdown_table(HEAD, rows))
    if options.store:
        store_section("latency", markdown_table(HEAD, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
