"""Every metric Plaza has, in one place, and how they are shown.

Names follow Prometheus' rules: base units (seconds), `_total` for what only grows, and no label whose values could
grow without bound: a route is its template, never a path, and no label holds an id. `docs/metrics.md` is written from
the declarations below.

With several processes each keeps its numbers in files of a shared folder, and whichever is asked adds up all of them;
`share` says so to processes that are about to be started. What a process that has ended had counted stays counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

from plaza.core.process.pids import is_running
from plaza.core.valkey.calls import CONNECTION_STATS

T = TypeVar("T")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

REGISTRY = CollectorRegistry()

# From a cached answer to the longest that a client waits.
_REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
# A job may take a blink or an hour.
_JOB_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)

HTTP_REQUESTS = Counter(
    "plaza_http_requests_total",
    "Requests answered, by method, route template and class of status (499: the client left).",
    ["method", "route", "status"],
    registry=REGISTRY,
)
HTTP_DURATION = Histogram(
    "plaza_http_request_duration_seconds",
    "Time from a request's first byte to the last of its answer; without event streams, which last while one listens.",
    ["method", "route", "status"],
    buckets=_REQUEST_BUCKETS,
    registry=REGISTRY,
)
# Most of our answers take less than the first of the steps above.
HTTP_LATENCY = Histogram(
    "plaza_http_latency_seconds",
    "The same over all routes together, in finer steps.",
    buckets=(0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2, 4, 8),
    registry=REGISTRY,
)
HTTP_IN_FLIGHT = Gauge(
    "plaza_http_requests_in_flight",
    "Requests being answered now.",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
HTTP_RATE_LIMITED = Counter(
    "plaza_http_rate_limited_total",
    "Requests refused as too fast, by kind of limit.",
    ["kind"],
    registry=REGISTRY,
)
VALKEY_TRIPS = Counter(
    "plaza_valkey_round_trips_total", "Calls and batches sent to Valkey; each waits once.", registry=REGISTRY
)
VALKEY_ERRORS = Counter(
    "plaza_valkey_errors_total",
    "Calls that got no answer from Valkey: it was away, too slow, overloaded or not ready.",
    registry=REGISTRY,
)
VALKEY_RECONNECTS = Counter(
    "plaza_valkey_reconnects_total", "Connections to Valkey made again after a loss.", registry=REGISTRY
)
VALKEY_IN_FLIGHT = Gauge(
    "plaza_valkey_calls_in_flight",
    "Calls sent to Valkey and not answered yet.",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
DAMAGED_KEYS = Counter(
    "plaza_damaged_keys_total",
    "How often a request or a job met a key of the wrong type, by its family (unknown: it could not be told).",
    ["family"],
    registry=REGISTRY,
)
UNREADABLE_ROWS = Counter(
    "plaza_unreadable_rows_total",
    "Rows of documented keys that another service wrote and that were skipped because they cannot be read, by domain.",
    ["domain"],
    registry=REGISTRY,
)
JOB_RUNS = Counter(
    "plaza_job_runs_total",
    "Runs of a timer's job, by how they ended: done, failed, or fenced (it had lost its lease).",
    ["job", "result"],
    registry=REGISTRY,
)
JOB_DURATION = Histogram(
    "plaza_job_duration_seconds", "Time a job's run took.", ["job"], buckets=_JOB_BUCKETS, registry=REGISTRY
)
JOB_LAST_SUCCESS = Gauge(
    "plaza_job_last_success_timestamp_seconds",
    "When a job last ended well, in Unix seconds.",
    ["job"],
    multiprocess_mode="max",
    registry=REGISTRY,
)
EVENTS_HANDLED = Counter(
    "plaza_events_handled_total",
    "Events given to a handler, by how it ended: done or failed (it is tried again).",
    ["stream", "group", "result"],
    registry=REGISTRY,
)
EVENTS_CLAIMED = Counter(
    "plaza_events_claimed_total",
    "Events taken over from a consumer that died or stalled.",
    ["stream", "group"],
    registry=REGISTRY,
)
EVENTS_DEAD = Counter(
    "plaza_events_dead_total",
    "Events given up after their last try and moved to the dead-letter stream.",
    ["stream", "group"],
    registry=REGISTRY,
)
EVENTS_WAITING = Gauge(
    "plaza_events_waiting",
    "Events that a group has not handled yet, as of the last tidying of the stream.",
    ["stream", "group"],
    multiprocess_mode="livemostrecent",
    registry=REGISTRY,
)
EVENTS_DROPPED = Counter(
    "plaza_events_dropped_total",
    "Events that a stream lost to its bound before every group had read them.",
    ["stream"],
    registry=REGISTRY,
)
CACHE_PAGES = Counter(
    "plaza_cache_pages_total",
    "Pages asked of the page cache, by what it did: hit, old (shown while it is renewed), computed, or passed by.",
    ["result"],
    registry=REGISTRY,
)
CACHE_ROWS = Counter(
    "plaza_cache_rows_copied_total",
    "Rows of the database that fell due, by how copying them ended: done, or failed (the old ones stay).",
    ["result"],
    registry=REGISTRY,
)
SQL_TRANSACTIONS = Counter(
    "plaza_sql_transactions_total",
    "SQL transactions, by kind (look, read, write) and how they ended: done, failed, away.",
    ["kind", "result"],
    registry=REGISTRY,
)
SQL_DURATION = Histogram(
    "plaza_sql_transaction_duration_seconds",
    "Time a SQL transaction took, the wait for a connection included.",
    ["kind"],
    buckets=_REQUEST_BUCKETS,
    registry=REGISTRY,
)

_DECLARED = tuple(metric for metric in list(globals().values()) if isinstance(metric, MetricWrapperBase))

if not os.environ.get(FOLDER_VARIABLE):  # of several processes, one's memory and CPU time say nothing
    ProcessCollector(registry=REGISTRY)


_PAGE = """# Metrics

Made from the code by `make docs`; a test fails when it is stale.

`GET /metrics` shows these to Prometheus. With several processes (`PLAZA_WORKERS`) any of them answers for all: counters
and histograms are summed, also over processes that have ended since the last start; gauges over those that run.
Durations are in seconds. A route is its template, so the number of series does not grow with use.
With one process, `process_*` (memory, CPU time, open files) are there too.

A few questions and the expressions that answer them:

- Is it slow? `histogram_quantile(0.99, sum by (le, route) (rate(plaza_http_request_duration_seconds_bucket[5m])))`
- Does it fail? `sum by (route) (rate(plaza_http_requests_total{status="5xx"}[5m]))`
- Has a daily job stopped? `time() - plaza_job_last_success_timestamp_seconds > 90000`
- Do events end as dead letters? `increase(plaza_events_dead_total[1h]) > 0`
"""


def share(folder: Path) -> dict[str, str]:
    """Empty the folder, and give the environment in which several processes count together.

    Called by the parent before it starts them: they must find the variable when they first import this module.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.db"):
        old.unlink()
    return {FOLDER_VARIABLE: str(folder)}


def sample() -> None:
    """Take over what connections have counted; too often for a metric of their own to be told each time."""
    with _sampling:
        for metric, name in ((VALKEY_TRIPS, "trips"), (VALKEY_ERRORS, "failures"), (VALKEY_RECONNECTS, "reconnects")):
            now = getattr(CONNECTION_STATS, name)
            metric.inc(now - _sampled.get(name, 0))
            _sampled[name] = now
        VALKEY_IN_FLIGHT.set(sum(len(socket.pending) for socket in list(CONNECTION_STATS.sockets)))


_sampling = Lock()  # a scrape runs in a thread
_sampled: dict[str, int] = {}


def exposition() -> bytes:
    """All numbers of all processes, as Prometheus reads them."""
    return _of_all_processes(generate_latest)


def families() -> list[Metric]:
    """All numbers of all processes, for code to add up."""
    return _of_all_processes(lambda registry: list(registry.collect()))


def _of_all_processes(read: Callable[[CollectorRegistry], T]) -> T:
    sample()
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return read(REGISTRY)
    registry = CollectorRegistry()
    with _alone(Path(folder)):
        _bury_the_dead(Path(folder))
        MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
        return read(registry)


def markdown() -> str:
    """`docs/metrics.md`, which `make docs` writes."""
    lines = [_PAGE, "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in _DECLARED:
        family = next(iter(metric.describe()))
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        lines.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two scrapes at once must not see each other half-way through folding files."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _bury_the_dead(folder: Path) -> None:
    """Fold the files of processes that have ended into one, so that restarts do not pile them up."""
    for file in folder.glob("*.db"):
        kind, _, pid = file.stem.rpartition("_")
        if not pid.isdigit() or is_running(int(pid)):
            continue
        if not kind.startswith("gauge_live"):
            _fold(file, folder / f"{kind}_ended.db", largest=kind == "gauge_max")
        file.unlink()


def _fold(file: Path, into: Path, largest: bool) -> None:
    numbers: Any = MmapedDict  # which has no types
    kept = numbers(str(into))
    try:
        for key, value, _, _ in numbers.read_all_values_from_file(str(file)):
            before, _ = kept.read_value(key)
            kept.write_value(key, max(before, value) if largest else before + value, 0.0)
    finally:
        kept.close()
