"""A Grafana dashboard and Prometheus alert rules, made from the metrics (`core/metrics.py`). `make docs` writes them.

Every metric has a panel of its own, below a row of the most important figures. Alerts name metrics by their objects, so
one that is renamed or removed cannot stay in an expression.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal

from plaza.core import metrics
from plaza.core.metrics import DECLARED, metric_name
from plaza.core.prometheus import Gauge, Histogram, MetricWrapperBase
from plaza.core.valkey_memory import WARN_SHARE

ALERTS_FILE: Final = "monitoring/alerts.yaml"
DASHBOARD_FILE: Final = "monitoring/dashboard.json"

DAY_AND_AN_HOUR_SECONDS: Final = 90_000
_COLUMNS: Final = 24
_PANEL_WIDTH, _PANEL_HEIGHT = 8, 7

_REQUESTS: Final = metric_name(metrics.HTTP_REQUESTS)
_LATENCY: Final = metric_name(metrics.HTTP_LATENCY)
_MEMORY: Final = metric_name(metrics.VALKEY_MEMORY)
_LIMIT: Final = metric_name(metrics.VALKEY_MEMORY_LIMIT)

ERROR_RATIO: Final = f'sum(rate({_REQUESTS}{{status="5xx"}}[5m])) / sum(rate({_REQUESTS}[5m]))'
P99_SECONDS: Final = f"histogram_quantile(0.99, sum by (le) (rate({_LATENCY}_bucket[5m])))"
MEMORY_SHARE: Final = f"{_MEMORY} / ({_LIMIT} > 0)"


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule. `meaning` and `action` are what an operator reads at night."""

    name: str
    expr: str
    minutes: int  # how long the condition holds before the alert fires
    severity: Literal["critical", "warning"]
    meaning: str
    action: str


def _grew(metric: MetricWrapperBase, span: str, labels: str = "", by: str = "> 0") -> str:
    """Whether a counter grew. A series with labels begins at its first count, where `increase` sees no growth."""
    series = f"{metric_name(metric)}{labels}"
    grew = f"increase({series}[{span}]) {by}"
    return f"{grew} or ({series} unless {series} offset {span}) {by}" if metric._labelnames else grew


ALERTS: Final = (
    Alert(
        "PlazaDown",
        'up{job="plaza"} == 0',
        1,
        "critical",
        "Prometheus cannot read the metrics of a server: it is down, or unreachable.",
        "Check the process and its log; `plaza doctor` on its machine names what stops a start.",
    ),
    Alert(
        "PlazaErrors",
        f"{ERROR_RATIO} > 0.01",
        5,
        "critical",
        "More than 1% of the requests fail with 5xx.",
        "See the dashboard for the routes, and the log for `unexpected_error` and the request ids.",
    ),
    Alert(
        "PlazaSlow",
        f"{P99_SECONDS} > 1",
        10,
        "warning",
        "One request in a hundred takes longer than a second.",
        "Compare Valkey, SQL and CPU on the dashboard; turn on tracing to see which call takes the time.",
    ),
    Alert(
        "PlazaOverloaded",
        f"sum(rate({metric_name(metrics.HTTP_SHED)}[5m])) > 0",
        5,
        "warning",
        "Requests are refused with 503, because they waited too long for a busy process.",
        "Raise PLAZA_WORKERS, or add a machine.",
    ),
    Alert(
        "PlazaValkeyUnavailable",
        f"rate({metric_name(metrics.VALKEY_ERRORS)}[5m]) > 0",
        2,
        "critical",
        "Commands get no reply: Valkey is unreachable, too slow, full or not ready. Requests fail with 503.",
        "Run `plaza doctor`; check Valkey's process, log, memory and network.",
    ),
    Alert(
        "PlazaFailover",
        _grew(metrics.FAILOVERS, "1h"),
        0,
        "warning",
        "A primary of Valkey has changed. Its last acknowledged writes may be lost; derived data is repaired.",
        "Find out why the node failed, and check on the Health page that the repair has ended.",
    ),
    Alert(
        "PlazaFailoverRepairSlow",
        f"{metric_name(metrics.FAILOVER_PROGRESS)} < 1",
        10,
        "warning",
        "The repair after a failover has run, or failed, for ten minutes. Until then counters and lists may be wrong.",
        "The Health page shows its progress; the log says why it fails (`job_failed`, `audit_inspector_failed`). "
        "It works half of the time beside other clients; check the load of Valkey.",
    ),
    Alert(
        "PlazaValkeyMemoryHigh",
        f"{MEMORY_SHARE} > {WARN_SHARE}",
        5,
        "warning",
        "Valkey uses more than 80% of its memory. When it is full, writes are refused with 503.",
        "Raise PLAZA_VALKEY_MAXMEMORY or maxmemory; `plaza keys --memory` shows what uses it.",
    ),
    Alert(
        "PlazaValkeyMemoryUnlimited",
        f"{_LIMIT} == 0",
        60,
        "warning",
        "Valkey has no memory limit, so the kernel may kill it.",
        "Set maxmemory, and maxmemory-policy noeviction.",
    ),
    Alert(
        "PlazaSqlUnavailable",
        f'rate({metric_name(metrics.SQL_TRANSACTIONS)}{{result="away"}}[5m]) > 0',
        2,
        "critical",
        "Transactions fail, because the database is unreachable or busy.",
        "Run `plaza doctor`; check the disk, or PostgreSQL's connections and locks.",
    ),
    Alert(
        "PlazaJobFailing",
        _grew(metrics.JOB_RUNS, "30m", '{result="failed"}', ">= 3"),
        0,
        "warning",
        "A job failed at least three times in half an hour.",
        "The Health page and the log (`job_failed`) have the reason. It is retried by itself.",
    ),
    Alert(
        "PlazaJobStopped",
        f"time() - max without (instance) ({metric_name(metrics.JOB_LAST_SUCCESS)}) > {DAY_AND_AN_HOUR_SECONDS}",
        0,
        "warning",
        "A job has not succeeded for more than a day.",
        "Check that a worker runs; the Health page shows the job's last result.",
    ),
    Alert(
        "PlazaEventsDead",
        _grew(metrics.EVENTS_DEAD, "1h"),
        0,
        "warning",
        "A handler failed for an event every time, and it was moved to the dead-letter stream.",
        "The log (`event_dead`) has the reason; docs/jobs.md shows how to read the stream.",
    ),
    Alert(
        "PlazaEventsLost",
        _grew(metrics.EVENTS_BEHIND, "1h"),
        0,
        "critical",
        "A group of consumers was so late that events were trimmed before it had handled them.",
        "Check that workers run, then rebuild: `plaza search rebuild`, `plaza notifications rebuild`.",
    ),
    Alert(
        "PlazaEventsWaiting",
        f"{metric_name(metrics.EVENTS_WAITING)} > 10000",
        10,
        "warning",
        "More than 10,000 events wait for a group of consumers: search, notifications or webhooks are late.",
        "Check that a worker runs and is not busy; start another with `plaza worker`.",
    ),
    Alert(
        "PlazaWebhookFailing",
        f'{metric_name(metrics.WEBHOOK_ENDPOINTS)}{{state="failing"}} > 0',
        60,
        "warning",
        "A webhook endpoint has failed for an hour. After three days it is disabled.",
        "`plaza webhooks list` names it; tell its owner.",
    ),
    Alert(
        "PlazaWebhookEventsDropped",
        _grew(metrics.WEBHOOK_DROPPED, "1h"),
        0,
        "warning",
        "An endpoint did not get events, because its queue was full or they had waited for a week.",
        "Repair or delete the endpoint. Its owner can read what is missing from `GET /events`.",
    ),
    Alert(
        "PlazaDamagedKeys",
        _grew(metrics.DAMAGED_KEYS, "1h"),
        0,
        "warning",
        "Another client has overwritten a key with the wrong type.",
        "`plaza audit` names it, and `plaza audit --repair` repairs it.",
    ),
    Alert(
        "PlazaUnreadableRows",
        _grew(metrics.UNREADABLE_ROWS, "1h"),
        0,
        "warning",
        "Another service has written rows that cannot be read; they are skipped.",
        "`plaza audit` names them.",
    ),
    Alert(
        "PlazaRowCacheFailing",
        _grew(metrics.CACHE_ROWS, "15m", '{result="failed"}'),
        15,
        "warning",
        "Database rows cannot be copied to the cache, so old ones are served.",
        "Check the database: `plaza doctor`, and the log of the worker.",
    ),
)


def alert_rules() -> str:
    """The text of the rule file. Its strings are JSON, which YAML contains."""
    lines = ["# `make docs` generates this file. docs/monitoring.md explains each alert.", "groups:", "  - name: plaza"]
    lines.append("    rules:")
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.minutes}m",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.meaning)}",
            f"          description: {json.dumps(alert.action)}",
        ]
    return "\n".join(lines) + "\n"


def alert_table() -> str:
    """The alerts as a table, for `docs/monitoring.md`."""
    lines = ["| alert | severity | what it means | what to do |", "|---|---|---|---|"]
    lines += [f"| `{a.name}` | {a.severity} | {a.meaning} | {a.action} |" for a in ALERTS]
    return "\n".join(lines) + "\n"


def dashboard() -> str:
    """The dashboard, as Grafana imports it. It asks for the Prometheus data source."""
    content = {
        "title": "Plaza",
        "uid": "plaza",
        "tags": ["plaza"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": list(_placed(_rows())),
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _rows() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the titles and panels of each row."""
    yield (
        "Overview",
        [
            _panel("Requests per second", "reqps", [(f"sum(rate({_REQUESTS}[5m]))", "requests")]),
            _panel("Share of failed requests", "percentunit", [(ERROR_RATIO, "5xx")]),
            _panel("Latency", "s", [(_quantile(share, _LATENCY), f"p{share}") for share in (50, 95, 99)]),
            _panel("Memory of Valkey, share of its limit", "percentunit", [(MEMORY_SHARE, "used")]),
        ],
    )
    for area, declared in groupby(sorted(DECLARED, key=_area), key=_area):
        yield area, [_metric_panel(metric) for metric in declared]


def _area(metric: MetricWrapperBase) -> str:
    """The row of a metric: the word after `plaza_`, or what several such words have in common."""
    word = metric_name(metric).split("_")[1]
    return _AREAS.get(word, word)


_AREAS: Final = {
    "damaged": "keys",
    "event": "listeners",
    "failovers": "failover",
    "topic": "listeners",
    "unreadable": "keys",
}
_UNITS: Final = {"bytes": "bytes", "ratio": "percentunit"}


def _metric_panel(metric: MetricWrapperBase) -> dict[str, Any]:
    name, labels = metric_name(metric), list(metric._labelnames)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels) or name
    if isinstance(metric, Histogram):
        queries = [(_quantile(share, name), f"p{share}") for share in (50, 99)]
        return _panel(name, "s", queries, metric._documentation)
    if isinstance(metric, Gauge):
        unit = _UNITS.get(name.rpartition("_")[2], "short")
        expr = f"time() - {name}" if name.endswith("_timestamp_seconds") else name
        return _panel(name, "s" if expr != name else unit, [(expr, legend)], metric._documentation)
    by = f" by ({', '.join(labels)})" if labels else ""
    return _panel(name, "cps", [(f"sum{by} (rate({name}[5m]))", legend)], metric._documentation)


def _quantile(percent: int, histogram: str) -> str:
    return f"histogram_quantile({percent / 100:g}, sum by (le) (rate({histogram}_bucket[5m])))"


def _panel(title: str, unit: str, queries: list[tuple[str, str]], about: str = "") -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + n), "datasource": source, "expr": expr, "legendFormat": legend}
        for n, (expr, legend) in enumerate(queries)
    ]
    return {
        "type": "timeseries",
        "title": title,
        "description": about,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _placed(rows: Iterator[tuple[str, list[dict[str, Any]]]]) -> Iterator[dict[str, Any]]:
    """Yield the rows and panels with their ids and places, three in a line."""
    id, top = 0, 0
    for title, panels in rows:
        id += 1
        yield {"id": id, "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": _COLUMNS, "h": 1}}
        top += 1
        for n, panel in enumerate(panels):
            id += 1
            line, column = divmod(n * _PANEL_WIDTH, _COLUMNS)
            place = {"x": column, "y": top + line * _PANEL_HEIGHT, "w": _PANEL_WIDTH, "h": _PANEL_HEIGHT}
            yield {"id": id, **panel, "gridPos": place}
        top += -(-len(panels) * _PANEL_WIDTH // _COLUMNS) * _PANEL_HEIGHT


PAGE: Final = """# Monitoring

GENERATED
Prometheus reads `GET /metrics` of each machine; [metrics](metrics.md) lists them. Two files turn them into alerts and
pictures:

- [monitoring/alerts.yaml](monitoring/alerts.yaml): alert rules for Prometheus.
- [monitoring/dashboard.json](monitoring/dashboard.json): a dashboard for Grafana, with the most important figures first
  and a panel for every metric.

## Prometheus

Name the job `plaza`: the rule `PlazaDown` looks for it. With `PLAZA_METRICS_ACCESS=admin`, Prometheus sends an API key.

```yaml
# prometheus.yml
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: plaza
    honor_labels: true
    static_configs:
      - targets: [127.0.0.1:8000]
```

Metrics of Plaza's jobs have a label `job` of their own. Without `honor_labels`, Prometheus renames it to
`exported_job`, and the panels of jobs show one line for all.

A `plaza worker` on its own serves no `/metrics`, so the alerts about jobs, failovers and dead-lettered events know
nothing of what it runs: its log and the Health page do. If it takes over a daily job that a server ran before,
`PlazaJobStopped` fires until that server restarts. Where you use these alerts, prefer `plaza serve`, whose figures have
those of its worker.

`promtool check rules alerts.yaml` checks the rules, as the tests do.

## Grafana

Dashboards → New → Import → upload `dashboard.json`, and choose your Prometheus as the data source. To provision it
instead, put the file into a folder that a provider of `/etc/grafana/provisioning/dashboards` names.

## Alerts

"""


def page(generated: str) -> str:
    """The text of `docs/monitoring.md`."""
    return PAGE.replace("GENERATED\n", f"{generated}\n") + alert_table()
