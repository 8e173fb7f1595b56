"""How the whole of Plaza is doing: what all processes have counted, and what Valkey says of itself.

Counters only grow, so a rate is the difference of two looks. The last looks are kept for a while, and a page shows what
happened since the oldest of them that is at most `SPAN_SECONDS` old; the first page after a start shows all since then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from msgspec import Struct
from prometheus_client import Metric

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.valkey import Valkey

SPAN_SECONDS: Final = 60.0
# Looks closer together than this are one.
LOOK_SECONDS: Final = 1.0
ROUTES_SHOWN: Final = 12

Buckets = tuple[tuple[float, float], ...]  # (no longer than, how many so far)


class Latency(Struct, rename="camel"):
    """Milliseconds that half, 95 and 99 of a hundred answers took at most; null if there were none."""

    p50: float | None
    p95: float | None
    p99: float | None


class RouteFigures(Struct):
    """A route. A stream lasts while somebody listens, so it has no mean."""

    route: str
    per_second: float
    mean_ms: float | None
    failed: int


class NodeFigures(Struct, rename="camel"):
    """A Valkey."""

    address: str
    version: str
    used_memory: int
    peak_memory: int
    fragmentation: float
    keys: int
    clients: int
    ops_per_second: int
    uptime_seconds: int


class Figures(Struct, rename="camel"):
    """Everything about now, or about the last minute."""

    seconds: float  # what the rates are of
    requests_per_second: float
    failed: int
    latency: Latency
    round_trips_per_second: float
    valkey_errors: int
    nodes: list[NodeFigures]
    routes: list[RouteFigures]


class Job(Struct):
    """A timer's job and its last run. Times are Unix milliseconds."""

    name: str
    state: str
    started_at: int | None
    duration_ms: int | None
    said: str
    next_at: int | None
    runs: int
    failures: int
    worker: str
    lease_ms: int | None  # what is left of it, while somebody holds it


@dataclass(slots=True)
class Counted:
    """What all processes have counted up to a moment."""

    at: float = 0.0
    requests: dict[tuple[str, str], float] = field(default_factory=dict)  # (route, class of status) → how many
    seconds: dict[str, float] = field(default_factory=dict)  # by route, without streams
    timed: dict[str, float] = field(default_factory=dict)  # how many answers these seconds are of
    latency: Buckets = ()
    trips: float = 0.0
    errors: float = 0.0


class Vitals:
    """Looks, and remembers the last looks."""

    def __init__(self, valkey: Valkey, clock: Clock, job_names: Sequence[str]) -> None:
        self._valkey = valkey
        self._clock = clock
        self._looks: deque[Counted] = deque([Counted(monotonic())])
        self._job_names = sorted(job_names)

    async def now(self) -> Figures:
        """How it goes. Reading the counters of many processes takes a while, so a thread does it."""
        if monotonic() - self._looks[-1].at >= LOOK_SECONDS:
            self._looks.append(await asyncio.to_thread(count))
        latest = self._looks[-1]
        while len(self._looks) > 2 and latest.at - self._looks[0].at > SPAN_SECONDS:
            self._looks.popleft()
        nodes = await asyncio.gather(*(_node(node) for node in self._valkey.primaries()))
        return _between(self._looks[0], latest, list(nodes))

    async def jobs(self) -> list[Job]:
        """The timers' jobs. One round trip."""
        names = self._job_names
        asked = [c for name in names for c in (("HGETALL", core.JOB(name)), ("PTTL", core.LEASE(name)))]
        replies = await self._valkey.batch(asked)
        return [_job(name, replies[2 * n], replies[2 * n + 1]) for n, name in enumerate(names) if replies[2 * n]]


def count() -> Counted:
    """Add up what all processes have counted so far."""
    counted, families = Counted(monotonic()), {family.name: family for family in metrics.families()}
    for sample in _samples(families, "plaza_http_requests", "_total"):
        at = (sample.labels["route"], sample.labels["status"])
        counted.requests[at] = counted.requests.get(at, 0) + sample.value
    for sums, suffix in ((counted.seconds, "_sum"), (counted.timed, "_count")):
        for sample in _samples(families, "plaza_http_request_duration_seconds", suffix):
            route = sample.labels["route"]
            sums[route] = sums.get(route, 0) + sample.value
    latency = {float(s.labels["le"]): s.value for s in _samples(families, "plaza_http_latency_seconds", "_bucket")}
    counted.latency = tuple(sorted(latency.items()))
    counted.trips = sum(s.value for s in _samples(families, "plaza_valkey_round_trips", "_total"))
    counted.errors = sum(s.value for s in _samples(families, "plaza_valkey_errors", "_total"))
    return counted


def _samples(families: Mapping[str, Metric], name: str, suffix: str) -> Iterable[Any]:
    family = families.get(name)
    return (s for s in family.samples if s.name == f"{name}{suffix}") if family is not None else ()


def _between(before: Counted, after: Counted, nodes: list[NodeFigures]) -> Figures:
    seconds = max(after.at - before.at, 0.001)
    made = {at: n - before.requests.get(at, 0) for at, n in after.requests.items()}
    requests = sum(made.values())
    trips = after.trips - before.trips
    return Figures(
        seconds=round(seconds, 1),
        requests_per_second=round(requests / seconds, 2),
        failed=int(sum(n for (_, status), n in made.items() if status == "5xx")),
        latency=percentiles(before.latency, after.latency),
        round_trips_per_second=round(trips / seconds, 2),
        valkey_errors=int(after.errors - before.errors),
        nodes=nodes,
        routes=_routes(before, after, made, seconds),
    )


def _routes(
    before: Counted, after: Counted, made: Mapping[tuple[str, str], float], seconds: float
) -> list[RouteFigures]:
    by_route: dict[str, float] = {}
    for (route, _), n in made.items():
        by_route[route] = by_route.get(route, 0) + n
    busy = sorted((route for route, n in by_route.items() if n), key=lambda route: -by_route[route])
    return [
        RouteFigures(
            route=route,
            per_second=round(by_route[route] / seconds, 2),
            mean_ms=_mean_ms(before, after, route),
            failed=int(made.get((route, "5xx"), 0)),
        )
        for route in busy[:ROUTES_SHOWN]
    ]


def _mean_ms(before: Counted, after: Counted, route: str) -> float | None:
    timed = after.timed.get(route, 0) - before.timed.get(route, 0)
    seconds = after.seconds.get(route, 0) - before.seconds.get(route, 0)
    return round(seconds / timed * 1000, 2) if timed else None


def percentiles(before: Buckets, after: Buckets) -> Latency:
    """From the steps of a histogram: between two steps, answers are taken to lie evenly."""
    past = dict(before)
    steps = [(bound, n - past.get(bound, 0)) for bound, n in after]
    total = steps[-1][1] if steps else 0
    if not total:
        return Latency(None, None, None)
    return Latency(*(round(1000 * _at(steps, share * total), 2) for share in (0.5, 0.95, 0.99)))


def _at(steps: Sequence[tuple[float, float]], rank: float) -> float:
    lower, below = 0.0, 0.0
    for bound, so_far in steps:
        if so_far >= rank:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * ((rank - below) / (so_far - below) if so_far > below else 1)
        lower, below = bound, so_far
    return lower


async def _node(node: Valkey) -> NodeFigures:
    text, keys = await node.batch([("INFO", "server", "memory", "clients", "stats"), ("DBSIZE",)])
    said = dict(line.split(":", 1) for line in str(text).splitlines() if ":" in line)
    return NodeFigures(
        address=f"port {said['tcp_port']}" if said.get("tcp_port", "0") != "0" else "embedded",
        version=said.get("valkey_version") or said.get("redis_version", ""),
        used_memory=int(said["used_memory"]),
        peak_memory=int(said["used_memory_peak"]),
        fragmentation=float(said.get("mem_fragmentation_ratio", 0)),
        keys=int(keys),
        clients=int(said["connected_clients"]),
        ops_per_second=int(said["instantaneous_ops_per_sec"]),
        uptime_seconds=int(said["uptime_in_seconds"]),
    )


def _job(name: str, said: Mapping[str, str], lease: int) -> Job:
    def number(field: str) -> int | None:
        return int(float(said[field])) if said.get(field) else None

    return Job(
        name=name,
        state=said.get("state", ""),
        started_at=number("started_at"),
        duration_ms=number("duration_ms"),
        said=said.get("error") or said.get("result", ""),
        next_at=number("next_at"),
        runs=number("runs") or 0,
        failures=number("failures") or 0,
        worker=said.get("worker", ""),
        lease_ms=lease if lease > 0 else None,
    )
