"""All metrics, and their output for Prometheus.

Names follow Prometheus' rules: base units (seconds), `_total` for counters, and no label with an unbounded number of
values: a route is its template, never a path, and no label is an id. `docs/metrics.md` is generated from these
declarations.

With several processes each stores its values in files of a shared folder, and the process that is asked adds them up;
`share` prepares the folder before they are forked. Counts of ended processes stay included.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from bisect import bisect_left
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from plaza.core.process.pids import is_running
from plaza.core.prometheus import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    MetricWrapperBase,
    MmapedDict,
    MultiProcessCollector,
    ProcessCollector,
    generate_latest,
    values,
)
from plaza.core.valkey.calls import CONNECTION_STATS

T = TypeVar("T")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

REGISTRY = CollectorRegistry()

# From a cached response to the longest time that a client waits.
_REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
LATENCY_BUCKETS = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2, 4, 8)
# A job may take milliseconds or an hour.
_JOB_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)

HTTP_REQUESTS = Counter(
    "plaza_http_requests_total",
    "Completed requests, by method, route template and status class (499: the client disconnected).",
    ["method", "route", "status"],
    registry=REGISTRY,
)
HTTP_DURATION = Histogram(
    "plaza_http_request_duration_seconds",
    "Time from the first byte of a request to the last byte of its response, without event streams.",
    ["method", "route", "status"],
    buckets=_REQUEST_BUCKETS,
    registry=REGISTRY,
)
# Most responses take less than the first bucket above.
HTTP_LATENCY = Histogram(
    "plaza_http_latency_seconds",
    "The same for all routes together, with finer buckets.",
    buckets=LATENCY_BUCKETS,
    registry=REGISTRY,
)
HTTP_IN_FLIGHT = Gauge(
    "plaza_http_requests_in_flight",
    "Requests in progress.",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
HTTP_RATE_LIMITED = Counter(
    "plaza_http_rate_limited_total",
    "Requests refused by a rate limit, by kind of limit.",
    ["kind"],
    registry=REGISTRY,
)
HTTP_SHED = Counter(
    "plaza_http_shed_total",
    "Requests refused because of overload, by reason: `queue_full` on arrival, `waited` after waiting too long.",
    ["reason"],
    registry=REGISTRY,
)
HTTP_QUEUED = Gauge(
    "plaza_http_requests_queued",
    "Requests that wait for their start because of overload.",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
VALKEY_TRIPS = Counter(
    "plaza_valkey_round_trips_total", "Commands and batches sent to Valkey; each is one round trip.", registry=REGISTRY
)
VALKEY_ERRORS = Counter(
    "plaza_valkey_errors_total",
    "Commands without a reply: Valkey was unreachable, too slow, overloaded or not ready.",
    registry=REGISTRY,
)
VALKEY_RECONNECTS = Counter(
    "plaza_valkey_reconnects_total", "Connections to Valkey opened again after a loss.", registry=REGISTRY
)
VALKEY_IN_FLIGHT = Gauge(
    "plaza_valkey_calls_in_flight",
    "Commands sent to Valkey without a reply yet.",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
VALKEY_MEMORY = Gauge(
    "plaza_valkey_memory_bytes",
    "Memory that Valkey uses, of all primaries together.",
    multiprocess_mode="livemostrecent",
    registry=REGISTRY,
)
VALKEY_MEMORY_LIMIT = Gauge(
    "plaza_valkey_memory_limit_bytes",
    "Memory that Valkey may use, of all primaries together; 0: no limit. Alert when 80% are used.",
    multiprocess_mode="livemostrecent",
    registry=REGISTRY,
)
FAILOVERS = Counter(
    "plaza_failovers_total",
    "Changes of a Valkey primary, after which derived data is repaired.",
    registry=REGISTRY,
)
FAILOVER_REPAIRED = Counter(
    "plaza_failover_repaired_total",
    "Repairs of derived data after failovers.",
    registry=REGISTRY,
)
FAILOVER_PROGRESS = Gauge(
    "plaza_failover_repair_progress_ratio",
    "Share of the keys that the repair after a failover has scanned in this pass; 1: complete; 0 also after a failure.",
    multiprocess_mode="livemostrecent",
    registry=REGISTRY,
)
DAMAGED_KEYS = Counter(
    "plaza_damaged_keys_total",
    "Keys of the wrong type found by a request or a job, by family (unknown: not identified).",
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
    "Runs of a job, by result: done, failed, or fenced (it had lost its lease).",
    ["job", "result"],
    registry=REGISTRY,
)
JOB_DURATION = Histogram(
    "plaza_job_duration_seconds", "Duration of a job's run.", ["job"], buckets=_JOB_BUCKETS, registry=REGISTRY
)
JOB_LAST_SUCCESS = Gauge(
    "plaza_job_last_success_timestamp_seconds",
    "When a job last succeeded, in Unix seconds.",
    ["job"],
    multiprocess_mode="max",
    registry=REGISTRY,
)
EVENTS_HANDLED = Counter(
    "plaza_events_handled_total",
    "Events processed by a handler, by result: done, failed (it is retried) or skipped (it lacks data).",
    ["stream", "group", "result"],
    registry=REGISTRY,
)
EVENTS_CLAIMED = Counter(
    "plaza_events_claimed_total",
    "Events taken over from a consumer that stopped.",
    ["stream", "group"],
    registry=REGISTRY,
)
EVENTS_DEAD = Counter(
    "plaza_events_dead_total",
    "Events moved to the dead-letter stream after the last attempt.",
    ["stream", "group"],
    registry=REGISTRY,
)
EVENTS_WAITING = Gauge(
    "plaza_events_waiting",
    "Events that a group has not processed yet, at the last trim of the stream.",
    ["stream", "group"],
    multiprocess_mode="livemostrecent",
    registry=REGISTRY,
)
EVENTS_BEHIND = Counter(
    "plaza_events_behind_total",
    "How often a group lost events, because they were trimmed before it had handled them.",
    ["stream", "group"],
    registry=REGISTRY,
)
WEBHOOK_ATTEMPTS = Counter(
    "plaza_webhook_attempts_total",
    "Requests to webhook endpoints, by result: delivered, or failed (it is retried).",
    ["result"],
    registry=REGISTRY,
)
WEBHOOK_DURATION = Histogram(
    "plaza_webhook_request_duration_seconds",
    "Duration of a request to a webhook endpoint, until its status.",
    buckets=_REQUEST_BUCKETS,
    registry=REGISTRY,
)
WEBHOOK_DROPPED = Counter(
    "plaza_webhook_events_dropped_total",
    "Events that a webhook endpoint did not get: its queue was full, or they had waited for a week.",
    registry=REGISTRY,
)
WEBHOOK_ENDPOINTS = Gauge(
    "plaza_webhook_endpoints",
    "Webhook endpoints by state: working, failing (the last request failed), or disabled.",
    ["state"],
    multiprocess_mode="livemostrecent",
    registry=REGISTRY,
)
WEBHOOK_WAITING = Gauge(
    "plaza_webhook_events_waiting",
    "Events that wait for webhook endpoints.",
    multiprocess_mode="livemostrecent",
    registry=REGISTRY,
)
EVENT_LISTENERS_CUT_OFF = Counter(
    "plaza_event_listeners_cut_off_total",
    "Listeners of `GET /events` that did not keep up and were disconnected.",
    registry=REGISTRY,
)
TOPIC_LISTENERS = Gauge(
    "plaza_topic_listeners",
    "Open pages and feed streams that wait for updates.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
TOPIC_LISTENERS_CUT_OFF = Counter(
    "plaza_topic_listeners_cut_off_total",
    "Open pages and feed streams that did not keep up and were disconnected.",
    registry=REGISTRY,
)
CACHE_PAGES = Counter(
    "plaza_cache_pages_total",
    "Requests to the page cache, by result: hit, old (served while it is recomputed), computed, or passed by.",
    ["result"],
    registry=REGISTRY,
)
CACHE_ROWS = Counter(
    "plaza_cache_rows_copied_total",
    "Database rows copied to the cache on schedule, by result: done, or failed (the old copy stays).",
    ["result"],
    registry=REGISTRY,
)
SQL_TRANSACTIONS = Counter(
    "plaza_sql_transactions_total",
    "SQL transactions, by kind (look, read, write) and result: done, failed, away.",
    ["kind", "result"],
    registry=REGISTRY,
)
SQL_DURATION = Histogram(
    "plaza_sql_transaction_duration_seconds",
    "Duration of a SQL transaction, with the wait for a connection.",
    ["kind"],
    buckets=_REQUEST_BUCKETS,
    registry=REGISTRY,
)
MEDIA_PROCESSING = Histogram(
    "plaza_media_processing_seconds",
    "Time to decode an uploaded picture and to write its variants, in a process of its own.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64),
    registry=REGISTRY,
)

DECLARED = tuple(metric for metric in list(globals().values()) if isinstance(metric, MetricWrapperBase))

if not os.environ.get(FOLDER_VARIABLE):  # with several processes the values of one are misleading
    ProcessCollector(registry=REGISTRY)


_PAGE = """# Metrics

`make docs` generates this page from the code; a test fails when it is out of date.

`GET /metrics` returns these for Prometheus. With several processes (`PLAZA_WORKERS`) any of them returns the metrics
of all: counters and histograms are summed, including processes that have ended since the last start; gauges only over
running ones.
They are computed at most once a second.
`PLAZA_METRICS_ACCESS=admin` restricts them to admins and API keys. Durations are in seconds. A route is its template,
so the number of series is bounded.
With one process, `process_*` (memory, CPU time, open files) are included.

Useful expressions:

- Slow routes: `histogram_quantile(0.99, sum by (le, route) (rate(plaza_http_request_duration_seconds_bucket[5m])))`
- Failing routes: `sum by (route) (rate(plaza_http_requests_total{status="5xx"}[5m]))`
- A daily job that stopped: `time() - plaza_job_last_success_timestamp_seconds > 90000`
- Dead letters: `increase(plaza_events_dead_total[1h]) > 0`
"""


def share(folder: Path) -> None:
    """Store all values in files of this folder from now on, in this process and in those that it forks."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.db"):
        old.unlink()
    os.environ[FOLDER_VARIABLE] = str(folder)
    # The library reads the variable when it is imported, and the metrics exist since then.
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
    for metric in DECLARED:
        for part in (metric, *getattr(metric, "_metrics", {}).values()):
            if part._is_observable():
                part._metric_init()


# Completed requests that are not counted yet: their counter and histogram, and their seconds; None: not observed.
# Counting many at once takes a fifth of the time. A deque, because a scrape takes them in a thread.
COMPLETED_REQUESTS: deque[tuple[Counter, Histogram, float | None]] = deque()


def _count_requests() -> None:
    counts: Counts[Counter] = Counts()
    seconds: dict[Histogram, list[float]] = {HTTP_LATENCY: []}
    while COMPLETED_REQUESTS:
        counter, histogram, spent = COMPLETED_REQUESTS.popleft()
        counts[counter] += 1
        if spent is not None:
            seconds.setdefault(histogram, []).append(spent)
            seconds[HTTP_LATENCY].append(spent)
    for counter, count in counts.items():
        counter.inc(count)
    for histogram, spent_each in seconds.items():
        for bucket, count in Counts(bisect_left(histogram._upper_bounds, spent) for spent in spent_each).items():
            histogram._buckets[bucket].inc(count)
        histogram._sum.inc(sum(spent_each))


def sample() -> None:
    """Count completed requests, and copy the counts of the Valkey connections. At every one it would cost too much."""
    with _sampling:
        _count_requests()
        for metric, name in ((VALKEY_TRIPS, "trips"), (VALKEY_ERRORS, "failures"), (VALKEY_RECONNECTS, "reconnects")):
            now = getattr(CONNECTION_STATS, name)
            metric.inc(now - _sampled.get(name, 0))
            _sampled[name] = now
        VALKEY_IN_FLIGHT.set(sum(len(socket.pending) for socket in list(CONNECTION_STATS.sockets)))


_sampling = Lock()  # a scrape runs in a thread
_sampled: dict[str, int] = {}


def exposition() -> bytes:
    """The metrics of all processes, in the Prometheus text format."""
    return _from_all_processes(generate_latest)


def families() -> list[Metric]:
    """The metrics of all processes, as objects."""
    return _from_all_processes(lambda registry: list(registry.collect()))


def _from_all_processes(read: Callable[[CollectorRegistry], T]) -> T:
    sample()
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return read(REGISTRY)
    registry = CollectorRegistry()
    with _locked(Path(folder)):
        _fold_ended_processes(Path(folder))
        MultiProcessCollector(registry, path=folder)  # type: ignore[no-untyped-call]
        return read(registry)


def metric_name(metric: MetricWrapperBase) -> str:
    """The name of a metric in expressions; those of a histogram have a further suffix."""
    family = next(iter(metric.describe()))
    return f"{family.name}_total" if family.type == "counter" else family.name


def markdown() -> str:
    """The text of `docs/metrics.md`."""
    lines = [_PAGE, "| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in DECLARED:
        family = next(iter(metric.describe()))
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        lines.append(f"| `{metric_name(metric)}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time fold files."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _fold_ended_processes(folder: Path) -> None:
    """Add up the files of ended processes in one file, so that restarts do not accumulate files."""
    for file in folder.glob("*.db"):
        kind, _, pid = file.stem.rpartition("_")
        if not pid.isdigit() or is_running(int(pid)):
            continue
        if not kind.startswith("gauge_live"):
            _fold(file, folder / f"{kind}_ended.db", largest=kind == "gauge_max")
        file.unlink()


def _fold(file: Path, into: Path, largest: bool) -> None:
    mmaped_dict: Any = MmapedDict  # it has no types
    total = mmaped_dict(str(into))
    try:
        for key, value, _, _ in mmaped_dict.read_all_values_from_file(str(file)):
            before, _ = total.read_value(key)
            total.write_value(key, max(before, value) if largest else before + value, 0.0)
    finally:
        total.close()
