"""The Grafana dashboard and the alert rules name only what exists, and promtool accepts and tests the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plaza import monitoring
from plaza.core import metrics
from tests.test_docs import DOCS

SUFFIXES = {"counter": [""], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
DASHBOARD = json.loads((DOCS / monitoring.DASHBOARD_FILE).read_text())


def label_names() -> dict[str, set[str]]:
    """The labels of every series that `/metrics` has, by its name."""
    found = {}
    for metric in metrics.DECLARED:
        for suffix in SUFFIXES[str(metric._type)]:
            own = {"le"} if suffix == "_bucket" else set()
            found[metrics.metric_name(metric) + suffix] = {*metric._labelnames, *own}
    return found


def expressions() -> Iterator[str]:
    rules = (DOCS / monitoring.ALERTS_FILE).read_text()
    yield from (json.loads(text) for text in re.findall(r"expr: (\".*\")", rules))
    yield from (target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ()))


def test_every_metric_and_label_of_an_expression_exists() -> None:
    known = label_names()
    for expression in expressions():
        names = re.findall(r"\bplaza_\w+", expression)
        assert set(names) <= known.keys(), expression
        for name, labels in re.findall(r"\b(plaza_\w+)\{(.*?)\}", expression):
            assert set(re.findall(r"(\w+)=", labels)) <= known[name], expression
        for group in re.findall(r"by \((.*?)\)", expression):
            assert set(group.split(", ")) <= known[names[0]], expression


def test_every_metric_has_a_panel() -> None:
    shown = " ".join(expressions())
    assert [name for metric in metrics.DECLARED if (name := metrics.metric_name(metric)) not in shown] == []


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place: dict[str, int] = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def promtool(*arguments: str) -> None:
    program = shutil.which("promtool") or str(Path(sys.executable).with_name("promtool"))
    assert Path(program).exists(), "run: make .venv/.promtool-ready"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", str(DOCS / monitoring.ALERTS_FILE))


FAILED_RUNS = 'plaza_job_runs_total{job="tidy",result="failed"}'
FAILED_ROWS = 'plaza_cache_rows_copied_total{result="failed"}'


def latency(within_a_second: int) -> dict[str, str]:
    """A hundred requests a minute, of which the others take up to two seconds."""
    counts = {"1": within_a_second, "2": 100, "+Inf": 100}
    return {f'plaza_http_latency_seconds_bucket{{le="{le}"}}': f"0+{count}x120" for le, count in counts.items()}


# The alert, the series that make it fire in minute 110, and similar ones that do not.
CASES: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("PlazaDown", {'up{job="plaza"}': "0x120"}, {'up{job="plaza"}': "1x120"}),
    (
        "PlazaErrors",
        {'plaza_http_requests_total{status="2xx"}': "0+98x120", 'plaza_http_requests_total{status="5xx"}': "0+2x120"},
        {'plaza_http_requests_total{status="2xx"}': "0+100x120", 'plaza_http_requests_total{status="5xx"}': "0x120"},
    ),
    ("PlazaSlow", latency(within_a_second=98), latency(within_a_second=99)),
    ("PlazaOverloaded", {"plaza_http_shed_total": "0+1x120"}, {"plaza_http_shed_total": "9x120"}),
    ("PlazaValkeyUnavailable", {"plaza_valkey_errors_total": "0+1x120"}, {"plaza_valkey_errors_total": "9x120"}),
    ("PlazaFailover", {"plaza_failovers_total": "0x100 1x20"}, {"plaza_failovers_total": "1x120"}),
    (
        "PlazaFailoverRepairSlow",
        {"plaza_failover_repair_progress_ratio": "1x90 0.4x30"},
        {"plaza_failover_repair_progress_ratio": "0.4x105 1x15"},
    ),
    (
        "PlazaValkeyMemoryHigh",
        {"plaza_valkey_memory_bytes": "81x120", "plaza_valkey_memory_limit_bytes": "100x120"},
        {"plaza_valkey_memory_bytes": "81x120", "plaza_valkey_memory_limit_bytes": "0x120"},
    ),
    (
        "PlazaValkeyMemoryUnlimited",
        {"plaza_valkey_memory_limit_bytes": "0x120"},
        {"plaza_valkey_memory_limit_bytes": "1x120"},
    ),
    (
        "PlazaSqlUnavailable",
        {'plaza_sql_transactions_total{result="away"}': "0+1x120"},
        {'plaza_sql_transactions_total{result="done"}': "0+1x120"},
    ),
    # The series begins with the first failure; with an earlier one it is in its sixth.
    ("PlazaJobFailing", {FAILED_RUNS: "_x100 1 2 3x20"}, {FAILED_RUNS: "_x100 1 2x20"}),
    ("PlazaJobFailing", {FAILED_RUNS: "3x100 4 5 6x20"}, {FAILED_RUNS: "3x100 4 5x20"}),
    (
        "PlazaJobStopped",  # a machine whose worker no longer runs the job is no reason
        {'plaza_job_last_success_timestamp_seconds{instance="a"}': "-90000x120"},
        {
            'plaza_job_last_success_timestamp_seconds{instance="a"}': "-90000x120",
            'plaza_job_last_success_timestamp_seconds{instance="b"}': "0x120",
        },
    ),
    # A series that begins with its first count.
    ("PlazaEventsDead", {"plaza_events_dead_total": "_x100 1x20"}, {"plaza_events_dead_total": "1x120"}),
    ("PlazaEventsLost", {"plaza_events_behind_total": "_x100 1x20"}, {"plaza_events_behind_total": "1x120"}),
    ("PlazaDamagedKeys", {"plaza_damaged_keys_total": "_x100 1x20"}, {"plaza_damaged_keys_total": "1x120"}),
    ("PlazaUnreadableRows", {"plaza_unreadable_rows_total": "_x100 1x20"}, {"plaza_unreadable_rows_total": "1x120"}),
    ("PlazaEventsWaiting", {"plaza_events_waiting": "10001x120"}, {"plaza_events_waiting": "10000x120"}),
    # Nine minutes are too short.
    ("PlazaEventsWaiting", {"plaza_events_waiting": "0x99 10001x20"}, {"plaza_events_waiting": "0x100 10001x20"}),
    (
        "PlazaWebhookFailing",
        {'plaza_webhook_endpoints{state="failing"}': "0x49 1x70"},
        {'plaza_webhook_endpoints{state="failing"}': "0x50 1x70", 'plaza_webhook_endpoints{state="working"}': "1x120"},
    ),
    (
        "PlazaWebhookEventsDropped",
        {"plaza_webhook_events_dropped_total": "0x100 1x20"},
        {"plaza_webhook_events_dropped_total": "1x120"},
    ),
    # One failed run in 15 minutes is no reason.
    ("PlazaRowCacheFailing", {FAILED_ROWS: "_x80 1+1x40"}, {FAILED_ROWS: "_x95 1x20"}),
]
# The labels that an alert has of its series.
LABELS = {
    "PlazaDown": {"job": "plaza"},
    "PlazaSqlUnavailable": {"result": "away"},
    "PlazaJobFailing": {"job": "tidy", "result": "failed"},
    "PlazaWebhookFailing": {"state": "failing"},
    "PlazaRowCacheFailing": {"result": "failed"},
}


def rule_test(alert: monitoring.Alert, series: dict[str, str], fires: bool) -> dict[str, Any]:
    fired = {
        "exp_labels": {"severity": alert.severity, **LABELS.get(alert.name, {})},
        "exp_annotations": {"summary": alert.meaning, "description": alert.action},
    }
    return {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": [
            {"eval_time": "110m", "alertname": alert.name, "exp_alerts": [fired] if fires else []},
        ],
    }


def test_every_alert_has_a_case() -> None:
    assert {alert.name for alert in monitoring.ALERTS} == {name for name, *_ in CASES}


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    alerts = {alert.name: alert for alert in monitoring.ALERTS}
    tests = [
        rule_test(alerts[name], series, fires)
        for name, firing, silent in CASES
        for series, fires in ((firing, True), (silent, False))
    ]
    file = tmp_path / "tests.yaml"  # JSON is YAML
    rules = str(DOCS / monitoring.ALERTS_FILE)
    file.write_text(json.dumps({"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))
