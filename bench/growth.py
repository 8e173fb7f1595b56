"""What large data costs: a warm home feed at ten times the data, and a reader of a group whose ranking has expired."""

from __future__ import annotations

import json
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import redis

from bench.community import BATCH, BenchCommunity
from bench.contenders import Contender, serving_plaza, settings_of
from bench.page import Check
from bench.paths import RequestPath, path_groups
from tests.servers import Server, running_server

GROWTH, COLD_GROUP = "following, warm, 10 × data", "cold group of 100,000"
TIMES_DATA, MAX_TIMES_COST = 10, 1.2
SETTLE_SECONDS = 900.0  # at most: the jobs that follow 300,000 follows must not run beside what is measured
GROUP_SIZE, MAX_WAIT_MS, MAX_PING_MS = 100_000, 1_000.0, 5.0
BUILDS, ARTICLES_PER_PAGE = 3, 25
IDLE_PING_SECONDS = 0.1  # about the time of a build
INTERSECTION = "score:large", ["group:large", "score:"]


def check_growth(small: Contender, community: BenchCommunity, requests: int, rounds: int) -> Check:
    """Compare a warm home feed with that of a community ten times as large, in turns."""
    larger = replace(community, users=community.users * TIMES_DATA, posts=community.posts * TIMES_DATA, articles=32)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data,
        running_server() as valkey,
        serving_plaza(Path(data), valkey) as large,
    ):
        larger.fill(large.port, settings_of(Path(data), large.valkey))
        large.settle(SETTLE_SECONDS)
        contenders = ((small, _warm_feed(community, requests)), (large, _warm_feed(larger, requests)))
        for server, path in contenders:
            server.measure(path, 0)
        costs = [[server.measure(path, round) for server, path in contenders] for round in range(rounds)]
    ratio = median(theirs.total / own.total for own, theirs in costs)
    service, valkey = (median(getattr(theirs, part) for _, theirs in costs) for part in ("service", "valkey"))
    figures = f"{service:.0f}+{valkey:.0f} µs, {ratio:.2f} × its own cost"
    return Check(GROWTH, figures, f"≤ {MAX_TIMES_COST} ×", ratio <= MAX_TIMES_COST)


def _warm_feed(community: BenchCommunity, requests: int) -> RequestPath:
    # Every user reads: a cache that only fits a small community does not help.
    count = max(requests, community.users)
    return next(path for group in path_groups(community, count) for path in group if path.name == "following, warm")


def check_cold_group(plaza: Contender, book: Server) -> Check:
    """Read a large group whose ranking has expired, with a PING beside it; then the book's ZINTERSTORE."""
    for valkey in (plaza.valkey, book):
        _fill_group(valkey)
    waits, pings, intersections, book_pings, idle_pings = ([] for _ in range(5))
    for _ in range(BUILDS):
        with pinging(plaza.valkey) as longest:
            time.sleep(IDLE_PING_SECONDS)
        idle_pings.append(longest[0])
        with plaza.valkey.redis_client() as client, pinging(plaza.valkey) as longest:
            client.delete("score:large")
            waits.append(_milliseconds(lambda: _read(plaza.port)))
            _wait_for_build(client)
        pings.append(longest[0])
        with book.redis_client() as client, pinging(book) as longest:
            client.delete("score:large")
            intersections.append(_milliseconds(lambda: client.zinterstore(*INTERSECTION, aggregate="MAX")))
        book_pings.append(longest[0])
    wait, ping = median(waits), median(pings)
    figures = (
        f"reader waits {wait:,.0f} ms, a PING beside it up to {ping:.1f} ms ({median(idle_pings):.1f} ms without it); "
        f"the book's ZINTERSTORE {median(intersections):,.0f} ms, PING {median(book_pings):.0f} ms"
    )
    met = wait < MAX_WAIT_MS and ping < MAX_PING_MS
    return Check(COLD_GROUP, figures, f"< {MAX_WAIT_MS / 1000:.0f} s, PING < {MAX_PING_MS:.0f} ms", met)


def _fill_group(valkey: Server) -> None:
    """Write the documented keys of many articles, which rank below all others."""
    oldest = time.time() - 2 * GROUP_SIZE
    with valkey.redis_client() as client:
        first = int(client.get("article:") or 0) + 1
        for start in range(first, first + GROUP_SIZE, BATCH):
            pipe = client.pipeline(transaction=False)
            names = {f"article:{i}": oldest + i for i in range(start, start + BATCH)}
            for name, posted in names.items():
                fields = {"title": "An article", "link": f"https://example.org/{name}", "author": "user:u1"}
                pipe.hset(name, mapping={**fields, "time": posted, "votes": 1})
            pipe.zadd("time:", names).zadd("score:", {name: posted + 432 for name, posted in names.items()})
            pipe.sadd("group:large", *names).incrby("article:", BATCH)
            pipe.execute()


def _read(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/groups/large/articles?order=score", timeout=60) as response:
        assert len(json.load(response)["articles"]) == ARTICLES_PER_PAGE


def _wait_for_build(client: redis.Redis) -> None:
    """Plaza may answer before the ranking is complete; PINGs wait for the rest too."""
    deadline = time.monotonic() + 60
    while not client.exists("score:large"):
        assert time.monotonic() < deadline, "the ranking is not built"
        time.sleep(0.01)


def _milliseconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


@contextmanager
def pinging(valkey: Server) -> Iterator[list[float]]:
    """Send PINGs all the time. Yields a list whose only element is the longest time of one so far, in ms."""
    longest, stop = [0.0], threading.Event()

    def run() -> None:
        with valkey.redis_client() as client:
            while not stop.is_set():
                longest[0] = max(longest[0], _milliseconds(client.ping))
                time.sleep(0.0005)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield longest
    finally:
        stop.set()
        thread.join()
