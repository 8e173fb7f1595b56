"""What an audience costs: `python -m bench live [--viewers 1000000]`.

First heartbeats over HTTP, each viewer with a token of their own: CPU of the service and of Valkey, and how many
viewers one core carries. Then Valkey's CPU for a heartbeat and for counts as the audience grows, and the memory of a
viewer. The best round counts, because other work on the machine can only add. The cost of a count comes from Valkey's
`commandstats`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis
import uvloop

from bench.community import issue_token
from bench.contenders import PathCost, serving_plaza
from bench.load import cpu_seconds, load, post
from bench.paths import OK
from plaza.core.clock import ManualClock
from plaza.core.functions import Functions
from plaza.core.settings import Settings
from plaza.core.valkey import connect
from plaza.live import keys
from plaza.live.heartbeats import LiveService
from plaza.live.library import LIBRARY
from plaza.live.model import Heartbeat, Viewer
from tests.servers import Server, running_server

ROUNDS = 4
BEATS = 10_000
HTTP_VIEWERS = (1_000, 100_000)
HTTP_BEATS = 20_000  # of a round over HTTP
BEAT_SECONDS = 30
ALIVE_SECONDS = 245  # the longest window
MIN_VIEWERS_PER_CORE = 150_000
MAX_BYTES = 750.0
MAX_TIMES_SMALLEST = 1.5
MAX_COUNT_US = 1_000.0
COUNTRIES = ("DE", "FR", "NZ", "US", "BR", "IN", "JP", "ZA", "ZZ", "GB")


def usec_per_call(client: redis.Redis, command: str) -> float:
    stats: Any = client.info("commandstats")
    return float(stats[f"cmdstat_{command}"]["usec_per_call"])


@dataclass(frozen=True, slots=True)
class Size:
    viewers: int
    beat_us: float
    count_us: float
    statistics_us: float
    bytes_each: float


def group(n: int) -> str:
    return f"group{n % 7}"


class Audience:
    """One event with one session and any number of viewers. Viewer `n` always has the same details."""

    def __init__(self, functions: Functions, client: redis.Redis, clock: ManualClock) -> None:
        self.live = LiveService(functions, Settings(jwt_secret="s" * 32, live_beats_per_second=10_000_000), clock)
        self.client = client
        self.clock = clock
        self.queue: list[int] = []  # viewers, oldest heartbeat first

    def viewer(self, n: int) -> Viewer:
        return Viewer(f"viewer-{n}", f"203.0.{n >> 8 & 255}.{n & 255}", COUNTRIES[n % 10], (group(n),))

    async def beat(self, names: list[int]) -> None:
        """Send heartbeats of these viewers, many at the same time."""
        for first in range(0, len(names), 500):
            self.clock.advance(seconds=0.001)
            batch = names[first : first + 500]
            await asyncio.gather(*(self.live.beat(self.viewer(n), "E", Heartbeat("web", "S")) for n in batch))

    async def grow(self, size: int) -> None:
        """Add viewers by writing the keys of their first heartbeats: a million real ones would take minutes."""
        if not self.queue:
            await self.beat(list(range(20)))  # these create the place and the groups
            self.queue = list(range(20))
        new = list(range(len(self.queue), size))
        for first in range(0, len(new), 1_000):
            self.clock.advance(seconds=0.001)
            self._write(new[first : first + 1_000])
        self.queue += new
        logins = self.client.hget(keys.EVENT_INFO("E"), "logins")
        result = await self.live.beat(self.viewer(size - 1), "E", Heartbeat("web", "S"))
        assert (result.alive, result.session_alive) == (size, size), result
        assert self.client.hget(keys.EVENT_INFO("E"), "logins") == logins, "the written viewing session continues"

    def _write(self, names: list[int]) -> None:
        viewers, now = [self.viewer(n) for n in names], self.clock.now_ms()
        details = {p.name: f"#{p.address}#{group(n)}#{p.country}" for n, p in zip(names, viewers, strict=True)}
        classes = {p.name: f"+{p.country}#{group(n)}" for n, p in zip(names, viewers, strict=True)}
        counts = Counter(f"c#{p.country}" for p in viewers) + Counter(f"g#{group(n)}" for n in names)
        pipe = self.client.pipeline(transaction=False)
        for audience, places in ((keys.event_audience("E"), "\nS#web"), (keys.session_audience("S"), "")):
            heartbeat, statistics, attended, _, entries, counted, *_ = audience
            pipe.zadd(heartbeat, dict.fromkeys(details, now))
            pipe.zadd(statistics, {name + each: now for name, each in details.items()})
            pipe.sadd(attended, *details)
            pipe.hset(entries, mapping={name: each + places for name, each in classes.items()})
            for field, count in counts.items():
                pipe.hincrby(counted, field, count)
        for name in keys.viewing_keys("E", "S", "web"):
            pipe.zadd(name, dict.fromkeys(details, now))
        pipe.execute()

    async def round(self, beats: int, rng: random.Random) -> None:
        """Send heartbeats in a realistic order: about 30 s after the last one, with a tenth of variation."""
        early = max(beats, len(self.queue) // 10)
        chosen = set(rng.sample(range(min(early, len(self.queue))), min(beats, len(self.queue))))
        names = [self.queue[i] for i in chosen]
        self.queue = [n for i, n in enumerate(self.queue) if i not in chosen] + names
        await self.beat(names)


async def by_size(place: Server, sizes: list[int]) -> list[Size]:
    """Measure Valkey's CPU for a heartbeat (best round) and for a count, as one audience grows."""
    assert place.process is not None
    process, rng, clock, found = psutil.Process(place.process.pid), random.Random(1), ManualClock(), []
    valkey = await connect(place.url)
    functions = Functions(valkey, [LIBRARY])
    await functions.load()
    client = redis.Redis(port=place.port)
    audience = Audience(functions, client, clock)
    memory: Any = client.info("memory")
    empty = memory["used_memory"]
    for size in sizes:
        await audience.grow(size)
        costs = []
        for _ in range(ROUNDS):
            beats, used = 0, cpu_seconds(process)
            while beats < BEATS:
                await audience.round(min(BEATS, size), rng)
                beats += min(BEATS, size)
            costs.append((cpu_seconds(process) - used) / beats * 1e6)
        counted = await count_us(functions, client, clock.now_ms())
        memory = client.info("memory")
        found.append(Size(size, min(costs), *counted, (memory["used_memory"] - empty) / size))
    await valkey.close()
    return found


async def count_us(functions: Functions, client: redis.Redis, now: int) -> tuple[float, float]:
    """Return Valkey's time for a count, and for a count by group and country."""
    costs = []
    for question, names in (
        ("live_alive", [keys.EVENT_HEARTBEAT("E"), keys.EVENT_INFO("E")]),
        ("live_statistics", keys.event_audience("E")),
    ):
        client.config_resetstat()
        for _ in range(200):
            await functions.query(question, names, now, 65_000)
        costs.append(usec_per_call(client, "fcall_ro"))
    return costs[0], costs[1]


def over_http(viewers: int) -> PathCost:
    """Measure heartbeats of an audience that is alive: 64 connections, a token per viewer, a session and a group."""
    body = b'{"location": "web", "session_id": "main", "groups": ["staff"]}'
    path = "/analytics/events/show/heartbeat"
    beats = [post(path, body, f"authorization: Bearer {issue_token(f'viewer{n}')}") for n in range(viewers)]
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data,
        running_server() as valkey,
        # The first heartbeats may take longer than a viewer is alive by default.
        serving_plaza(Path(data), valkey, PLAZA_LIVE_ALIVE_SECONDS=str(ALIVE_SECONDS)) as plaza,
    ):
        uvloop.run(load(plaza.port, beats, OK, len(beats)))
        plaza.settle()
        costs = []
        for round in range(ROUNDS):
            some = [beats[(round * HTTP_BEATS + n) % viewers] for n in range(HTTP_BEATS)]
            before = plaza.cpu_seconds()
            uvloop.run(load(plaza.port, some, OK, HTTP_BEATS))
            spent = [(now - then) / HTTP_BEATS * 1e6 for now, then in zip(plaza.cpu_seconds(), before, strict=True)]
            costs.append(PathCost(spent[0], spent[1], 0.0))
        with valkey.redis_client() as client:
            since = (time.time() - ALIVE_SECONDS) * 1_000
            assert client.zcount(keys.EVENT_HEARTBEAT("show"), since, "+inf") == viewers, "all are alive"
    return min(costs, key=lambda cost: cost.total)


def carries(sizes: Sequence[int]) -> tuple[bool, float]:
    """Print how many viewers a core carries. Returns whether the target is met, and the service's µs of a heartbeat."""
    print("Heartbeats over HTTP, with a session and a group: CPU µs, and viewers that one core carries at 30 s beats")
    print(f"  {'viewers':>10}{'service':>9}{'Valkey':>9}{'viewers a core':>16}")
    costs = [over_http(viewers) for viewers in sizes]
    carried = [BEAT_SECONDS * 1e6 / cost.total for cost in costs]
    for viewers, cost, each in zip(sizes, costs, carried, strict=True):
        print(f"  {viewers:10,}{cost.service:9.1f}{cost.valkey:9.1f}{each:16,.0f}")
    print(f"  a core carries at least {min(carried):,.0f} viewers (target: {MIN_VIEWERS_PER_CORE:,})\n", flush=True)
    return min(carried) >= MIN_VIEWERS_PER_CORE, costs[0].service


def grows(place: Server, sizes: list[int], http_us: float) -> bool:
    """Print the table by size. Returns whether the targets are met. The cost of HTTP does not depend on the size."""
    found = asyncio.run(by_size(place, sizes))
    print("One audience as it grows: CPU µs of a beat with a session, a group, ten countries; Valkey's µs of a count")
    print(f"  {'viewers':>10}{'Valkey':>9}{'with HTTP':>11}{'count':>8}{'by group and country':>22}{'bytes each':>12}")
    for size in found:
        print(
            f"  {size.viewers:10,}{size.beat_us:9.1f}{size.beat_us + http_us:11.1f}{size.count_us:8.1f}"
            f"{size.statistics_us:22.1f}{size.bytes_each:12,.0f}"
        )
    times = max(size.beat_us + http_us for size in found) / (found[0].beat_us + http_us)
    slowest = max(max(size.count_us, size.statistics_us) for size in found)
    print(f"  a beat costs at most {times:.2f} times that of the smallest (target: {MAX_TIMES_SMALLEST:g})")
    print(f"  counting takes at most {slowest:.0f} µs (target: {MAX_COUNT_US:,.0f})")
    print(f"  a viewer of the largest takes {found[-1].bytes_each:,.0f} B (target: {MAX_BYTES:g})\n")
    return times <= MAX_TIMES_SMALLEST and slowest < MAX_COUNT_US and found[-1].bytes_each <= MAX_BYTES


def main(arguments: Sequence[str] = ()) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench live")
    parser.add_argument("--viewers", type=int, default=1_000_000, help="the largest audience")
    most = parser.parse_args(arguments).viewers
    uvloop.install()
    enough, http_us = carries([size for size in HTTP_VIEWERS if size <= most])
    with running_server() as place:
        flat = grows(place, [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= most], http_us)
    return 0 if enough and flat else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
