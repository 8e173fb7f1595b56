"""The figures of the health page: counters of all processes, Valkey's own statistics, and the jobs.

Requests and response times come from the history of all processes (`core/health_history.py`), in fixed buckets. What
the history does not have, such as the busiest routes, is the difference of two samples of this machine's counters, of
the last `SPAN_SECONDS`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from plaza.core import keys as core
from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.health_history import BUCKET_SECONDS, HealthHistory, merged
from plaza.core.prometheus import Metric
from plaza.core.valkey import Valkey
from plaza.core.valkey_memory import memory_warning, parse_info
from plaza.web.system_state import node_name

SPAN_SECONDS: Final = 60.0
# A sample is used again for this long.
SAMPLE_SECONDS: Final = 1.0
MAX_ROUTES: Final = 12
# Buckets of the history that are a minute.
MINUTE_BUCKETS: Final = 60 // BUCKET_SECONDS

Buckets = tuple[tuple[float, float], ...]  # (upper bound in seconds, cumulative count)


class Latency(Struct, rename="camel"):
    """Percentiles of response times in milliseconds; null without responses."""

    p50: float | None
    p95: float | None
    p99: float | None


class RouteFigures(Struct):
    """A route. A stream has no mean: it lasts as long as its client listens."""

    route: str
    per_second: float
    mean_ms: float | None
    failed: int


class NodeFigures(Struct, rename="camel"):
    """A Valkey server."""

    address: str
    version: str = ""  # empty if it does not respond
    used_memory: int = 0
    peak_memory: int = 0
    memory_limit: int = 0  # 0: no limit
    fragmentation: float = 0
    keys: int = 0
    clients: int = 0
    ops_per_second: int = 0
    uptime_seconds: int = 0
    memory_warning: str = ""  # empty unless operators should act


class HealthFigures(Struct, rename="camel"):
    """Rates of the last minute, and the current state of Valkey."""

    seconds: float  # the period of the rates
    requests_per_second: float
    failed: int
    latency: Latency
    round_trips_per_second: float
    valkey_errors: int
    nodes: list[NodeFigures]
    routes: list[RouteFigures]


class JobStatus(Struct):
    """A job and its last run. Times are Unix milliseconds."""

    name: str
    state: str
    started_at: int | None
    duration_ms: int | None
    result: str
    next_at: int | None
    runs: int
    failures: int
    worker: str
    lease_ms: int | None  # the remaining time while a worker holds the lease


class Counters(Struct):
    """The counters of all processes at one time."""

    at: float = 0.0
    requests: dict[tuple[str, str], float] = field(default_factory=dict)  # (route, status class) → requests
    seconds: dict[str, float] = field(default_factory=dict)  # per route, without streams
    timed: dict[str, float] = field(default_factory=dict)  # responses that `seconds` covers
    latency: Buckets = ()
    trips: float = 0.0
    errors: float = 0.0


class HealthMonitor:
    """Reads the figures and stores the samples that rates need."""

    def __init__(self, valkey: Valkey, clock: Clock, history: HealthHistory, job_names: Sequence[str]) -> None:
        self._valkey = valkey
        self.history = history
        self._clock = clock
        self._samples: deque[Counters] = deque([Counters(monotonic())])
        self._job_names = sorted(job_names)

    async def figures(self) -> HealthFigures:
        """Return the current figures. A thread reads the counters, since many processes make this slow."""
        if monotonic() - self._samples[-1].at >= SAMPLE_SECONDS:
            self._samples.append(await asyncio.to_thread(read_counters))
        latest = self._samples[-1]
        while len(self._samples) > 2 and latest.at - self._samples[0].at > SPAN_SECONDS:
            self._samples.popleft()
        nodes = await asyncio.gather(*(_node(node) for node in self._valkey.primaries()))
        if len(nodes) > 1:
            nodes = [_with_name(node) for node in nodes]
        sampled = _figures_between(self._samples[0], latest, nodes)
        try:
            buckets = await self.history.buckets("hour")
        except Unavailable:
            return sampled  # of this machine
        last = merged(buckets, MINUTE_BUCKETS)[-1].point()
        return msgspec.structs.replace(
            sampled,
            seconds=float(MINUTE_BUCKETS * BUCKET_SECONDS),
            requests_per_second=last.requests_per_second,
            failed=last.failed,
            latency=Latency(last.p50, last.p95, last.p99),
            round_trips_per_second=last.round_trips_per_second,
        )

    async def jobs(self) -> list[JobStatus]:
        """Return the jobs that have run. One round trip."""
        names = self._job_names
        commands = [command for name in names for command in (("HGETALL", core.JOB(name)), ("PTTL", core.LEASE(name)))]
        replies = await self._valkey.batch(commands)
        return [_job_status(name, replies[2 * n], replies[2 * n + 1]) for n, name in enumerate(names) if replies[2 * n]]


def read_counters() -> Counters:
    """Add up the counters of all processes."""
    counters, families = Counters(monotonic()), {family.name: family for family in metrics.families()}
    for sample in _samples(families, "plaza_http_requests", "_total"):
        key = (sample.labels["route"], sample.labels["status"])
        counters.requests[key] = counters.requests.get(key, 0) + sample.value
    for sums, suffix in ((counters.seconds, "_sum"), (counters.timed, "_count")):
        for sample in _samples(families, "plaza_http_request_duration_seconds", suffix):
            route = sample.labels["route"]
            sums[route] = sums.get(route, 0) + sample.value
    latency = {float(s.labels["le"]): s.value for s in _samples(families, "plaza_http_latency_seconds", "_bucket")}
    counters.latency = tuple(sorted(latency.items()))
    counters.trips = sum(s.value for s in _samples(families, "plaza_valkey_round_trips", "_total"))
    counters.errors = sum(s.value for s in _samples(families, "plaza_valkey_errors", "_total"))
    return counters


def _samples(families: Mapping[str, Metric], name: str, suffix: str) -> Iterable[Any]:
    family = families.get(name)
    return (s for s in family.samples if s.name == f"{name}{suffix}") if family is not None else ()


def _figures_between(before: Counters, after: Counters, nodes: list[NodeFigures]) -> HealthFigures:
    seconds = max(after.at - before.at, 0.001)
    requests = {key: count - before.requests.get(key, 0) for key, count in after.requests.items()}
    trips = after.trips - before.trips
    return HealthFigures(
        seconds=round(seconds, 1),
        requests_per_second=round(sum(requests.values()) / seconds, 2),
        failed=int(sum(count for (_, status), count in requests.items() if status == "5xx")),
        latency=percentiles(before.latency, after.latency),
        round_trips_per_second=round(trips / seconds, 2),
        valkey_errors=int(after.errors - before.errors),
        nodes=nodes,
        routes=_busiest_routes(before, after, requests, seconds),
    )


def _busiest_routes(
    before: Counters, after: Counters, requests: Mapping[tuple[str, str], float], seconds: float
) -> list[RouteFigures]:
    by_route: dict[str, float] = {}
    for (route, _), count in requests.items():
        by_route[route] = by_route.get(route, 0) + count
    busy = sorted((route for route, n in by_route.items() if n), key=lambda route: -by_route[route])
    return [
        RouteFigures(
            route=route,
            per_second=round(by_route[route] / seconds, 2),
            mean_ms=_mean_ms(before, after, route),
            failed=int(requests.get((route, "5xx"), 0)),
        )
        for route in busy[:MAX_ROUTES]
    ]


def _mean_ms(before: Counters, after: Counters, route: str) -> float | None:
    timed = after.timed.get(route, 0) - before.timed.get(route, 0)
    seconds = after.seconds.get(route, 0) - before.seconds.get(route, 0)
    return round(seconds / timed * 1000, 2) if timed else None


def percentiles(before: Buckets, after: Buckets) -> Latency:
    """Percentiles from two samples of a histogram, interpolated linearly inside a bucket."""
    earlier = dict(before)
    buckets = [(bound, count - earlier.get(bound, 0)) for bound, count in after]
    total = buckets[-1][1] if buckets else 0
    if not total:
        return Latency(None, None, None)
    return Latency(*(round(1000 * _value_at_rank(buckets, share * total), 2) for share in (0.5, 0.95, 0.99)))


def _value_at_rank(buckets: Sequence[tuple[float, float]], rank: float) -> float:
    lower, below = 0.0, 0.0
    for bound, cumulative in buckets:
        if cumulative >= rank:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * ((rank - below) / (cumulative - below) if cumulative > below else 1)
        lower, below = bound, cumulative
    return lower


def _with_name(node: NodeFigures) -> NodeFigures:
    """Return a node whose warning says which one it is."""
    warning = f"{node.address}: {node.memory_warning}" if node.memory_warning else ""
    return msgspec.structs.replace(node, memory_warning=warning)


async def _node(node: Valkey) -> NodeFigures:
    try:
        text, keys = await node.batch([("INFO", "server", "memory", "clients", "stats"), ("DBSIZE",)])
    except Unavailable:
        return NodeFigures(address=node_name(node), memory_warning="It does not respond.")
    info = parse_info(str(text))
    return NodeFigures(
        address=f"port {info['tcp_port']}" if info.get("tcp_port", "0") != "0" else "embedded",
        version=info.get("valkey_version") or info.get("redis_version", ""),
        used_memory=int(info["used_memory"]),
        peak_memory=int(info["used_memory_peak"]),
        memory_limit=int(info.get("maxmemory", 0)),
        fragmentation=float(info.get("mem_fragmentation_ratio", 0)),
        keys=int(keys),
        clients=int(info["connected_clients"]),
        ops_per_second=int(info["instantaneous_ops_per_sec"]),
        uptime_seconds=int(info["uptime_in_seconds"]),
        memory_warning=memory_warning(int(info["used_memory"]), int(info.get("maxmemory", 0))),
    )


def _job_status(name: str, fields: Mapping[str, str], lease_ms: int) -> JobStatus:
    def number(field: str) -> int | None:
        return int(float(fields[field])) if fields.get(field) else None

    return JobStatus(
        name=name,
        state=fields.get("state", ""),
        started_at=number("started_at"),
        duration_ms=number("duration_ms"),
        result=fields.get("error") or fields.get("result", ""),
        next_at=number("next_at"),
        runs=number("runs") or 0,
        failures=number("failures") or 0,
        worker=fields.get("worker", ""),
        lease_ms=lease_ms if lease_ms > 0 else None,
    )
