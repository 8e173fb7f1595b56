"""Logs and metrics, and the secrets that never appear in them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from plaza.core import metrics, telemetry
from plaza.core.errors import Unavailable
from plaza.core.process.pids import is_running
from plaza.core.settings import Settings
from plaza.core.sql import Sql
from plaza.core.telemetry import HIDDEN, RequestLog, configure_logs, metrics_sampling
from plaza.core.valkey import RequestUsage, Valkey
from tests.processes import until
from tests.servers import Cluster, Server, running_server
from tests.timeouts import connect_for_test, within_time_limit
from tests.waiting import eventually


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Logs as JSON lines in memory; afterwards as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logs(stream)
    yield stream
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def records(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_its_time_and_level(lines: io.StringIO) -> None:
    structlog.get_logger().warning("the pump is slow", litres=3)
    (record,) = records(lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", record.pop("time"))
    assert record == {"event": "the pump is slow", "level": "warning", "litres": 3}


def test_log_lines_of_libraries_have_the_same_format(lines: io.StringIO) -> None:
    logging.getLogger("some.library").error("it broke %d times", 3)
    (record,) = records(lines)
    assert record["event"] == "it broke 3 times"
    assert record["logger"] == "some.library"
    assert record["level"] == "error"


def test_only_sqlalchemys_pool_logs_no_cancellation(lines: io.StringIO) -> None:
    for name in ("some.library", "sqlalchemy.pool.impl.AsyncAdaptedQueuePool"):
        for error in (asyncio.CancelledError(), ValueError()):
            logging.getLogger(name).error("closing", exc_info=error)
    logged = [(record["logger"], "CancelledError" in record["exception"]) for record in records(lines)]
    assert logged == [
        ("some.library", True), ("some.library", False), ("sqlalchemy.pool.impl.AsyncAdaptedQueuePool", False),
    ]  # fmt: skip


@pytest.mark.usefixtures("lines")
def test_a_replaced_and_closed_stderr_breaks_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    configure_logs()
    monkeypatch.setattr(sys, "stderr", second)
    first.close()
    structlog.get_logger().info("still here")
    logging.getLogger("some.library").info("and here")
    assert [record["event"] for record in records(second)] == ["still here", "and here"]


@pytest.mark.usefixtures("lines")
def test_a_stderr_that_cannot_be_written_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: a job that says that it has begun would be over."""
    reader, writer = os.pipe()
    os.close(reader)
    out = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stderr", out)
    configure_logs()
    for _ in range(2):
        structlog.get_logger().info("still here")
        logging.getLogger("some.library").info("and here")
    with contextlib.suppress(BrokenPipeError):
        out.close()


def test_lines_on_a_terminal_are_readable_text() -> None:
    master, slave = os.openpty()
    program = "import structlog, plaza.core.telemetry as t; t.configure_logs(); structlog.get_logger().info('hi', a=1)"
    done = subprocess.run([sys.executable, "-c", program], stderr=slave, check=True)
    os.close(slave)
    output = os.read(master, 4096).decode()
    os.close(master)
    assert done.returncode == 0
    assert "hi" in output
    assert not output.startswith("{")


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "Authorization",
        "x-authorization",
        "access_token",
        "Set-Cookie",
        "api_key",
        "X-API-Key",
        "jwt_secret",
    ],
)
def test_a_value_whose_name_says_it_is_secret_is_never_written(lines: io.StringIO, name: str) -> None:
    structlog.get_logger().info("in", **{name: "hunter2", "inside": {name: "hunter2", "list": [{name: "hunter2"}]}})
    assert "hunter2" not in lines.getvalue()
    assert records(lines)[0][name] == HIDDEN


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach postgresql://plaza:hunter2@db/plaza",
        "cannot reach valkey://:hunter2@db:6379",
        "a password with a sign: redis://u:a@hunter2@db",
        "got Bearer hunter2-hunter2",
        "got eyJhbGciOiJIUzI1NiJ9.hunter2.x-y_z",
    ],
)
def test_a_secret_inside_a_text_is_never_written(lines: io.StringIO, text: str) -> None:
    structlog.get_logger().info(text, also=[text], bytes=text.encode(), error=ValueError(text))
    logging.getLogger("some.library").error(text)
    assert "hunter2" not in lines.getvalue()


def test_a_traceback_shows_neither_variables_nor_passwords(lines: io.StringIO) -> None:
    def connect(_: str) -> None:
        kept_in_a_variable = "hunter2"
        raise ValueError("no answer from valkey://:hunter3@db", len(kept_in_a_variable))

    try:
        connect("x")
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("some.library").exception("failed")
    assert "ValueError" in records(lines)[0]["exception"]
    assert "hunter" not in lines.getvalue()


@dataclass
class SampleActor:
    name: str


@dataclass
class SampleRequest:
    """A finished request, as `core/http/app.py` reports it."""

    method: str = "GET"
    path: str = "/posts/7"
    template: str = "/posts/{post}"
    request_id: str = "r1"
    streams: bool = False
    usage: RequestUsage = field(default_factory=lambda: RequestUsage(trips=2, seconds=0.0015))
    actor: SampleActor | None = None


def number(name: str, **labels: str) -> float:
    metrics.sample()
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


async def test_each_request_is_one_line_with_status_time_and_round_trips() -> None:
    out = io.StringIO()
    requests = RequestLog(out)
    requests.request_completed(SampleRequest(actor=SampleActor("ana")), 200, 0.0123)
    requests.request_completed(SampleRequest(method="POST"), 503, 0.5)
    await asyncio.sleep(0)
    first, second = records(out)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "event": "request",
        "method": "GET",
        "path": "/posts/7",
        "status": 200,
        "ms": 12.3,
        "trips": 2,
        "valkey_ms": 1.5,
        "request_id": "r1",
        "route": "/posts/{post}",
        "user": "ana",
    }
    assert (second["level"], second["status"]) == ("error", 503)


async def test_the_duration_of_a_stream_is_not_a_latency() -> None:
    labels = {"method": "GET", "route": "/watched", "status": "2xx"}
    requests = RequestLog(io.StringIO())
    requests.request_completed(SampleRequest(template="/watched", streams=True), 200, 300.0)
    requests.request_completed(SampleRequest(template="/watched"), 200, 0.01)
    requests.flush()
    assert number("plaza_http_requests_total", **labels) == 2
    assert number("plaza_http_request_duration_seconds_count", **labels) == 1
    assert number("plaza_http_request_duration_seconds_sum", **labels) == 0.01


async def test_durations_are_counted_in_the_bucket_of_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"method": "GET", "route": "/timed", "status": "2xx"}
    requests = RequestLog(io.StringIO())
    monkeypatch.setattr(telemetry, "MAX_UNCOUNTED", 3)
    for seconds in (0.001, 0.005, 0.0051, 11.0):
        requests.request_completed(SampleRequest(template="/timed"), 200, seconds)
    assert len(metrics.COMPLETED_REQUESTS) < 3
    requests.flush()
    counts = {
        le: number("plaza_http_request_duration_seconds_bucket", le=le, **labels)
        for le in ("0.005", "0.01", "10.0", "+Inf")
    }
    assert counts == {"0.005": 2, "0.01": 3, "10.0": 3, "+Inf": 4}


async def test_pending_lines_are_written_at_shutdown() -> None:
    out = io.StringIO()
    requests = RequestLog(out)
    requests.request_completed(SampleRequest(), 200, 0.01)
    requests.flush()
    assert len(records(out)) == 1


async def test_lines_of_several_processes_do_not_mix() -> None:
    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

    pieces: list[str] = []
    requests = RequestLog(Pipe(), pretty=False)
    for _ in range(100):
        requests.request_completed(SampleRequest(path="/posts/" + "x" * 5000), 200, 0.01)
        requests.request_completed(SampleRequest(), 200, 0.01)
    requests.flush()
    assert all(len(piece) <= 4096 and piece.endswith("}\n") for piece in pieces)  # what a pipe takes in one go
    assert sum(piece.count("\n") for piece in pieces) == 200
    assert len(pieces) < 100


async def test_an_unread_log_stops_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "w") as out:
        requests = RequestLog(out)
        requests.request_completed(SampleRequest(), 200, 0.01)
        requests.flush()


async def test_a_path_cannot_send_control_characters_to_the_terminal() -> None:
    out = io.StringIO()
    requests = RequestLog(out, pretty=True)
    requests.request_completed(SampleRequest(path="/\x1b[2J"), 404, 0.01)
    requests.flush()
    assert "\x1b" not in out.getvalue()


async def test_requests_are_counted_by_method_route_and_class_of_status() -> None:
    requests = RequestLog(io.StringIO())
    labels = {"method": "GET", "route": "/posts/{post}", "status": "2xx"}
    count, spent = (
        number("plaza_http_requests_total", **labels),
        number("plaza_http_request_duration_seconds_sum", **labels),
    )
    requests.request_completed(SampleRequest(), 200, 0.25)
    requests.request_completed(SampleRequest(), 204, 0.25)
    requests.flush()
    assert number("plaza_http_requests_total", **labels) == count + 2
    assert number("plaza_http_request_duration_seconds_sum", **labels) == spent + 0.5


async def test_no_client_can_make_new_series() -> None:
    requests = RequestLog(io.StringIO())
    before = len(next(iter(metrics.HTTP_REQUESTS.collect())).samples)
    for i in range(50):
        requests.request_completed(SampleRequest(method=f"FOO{i}", path=f"/nowhere/{i}", template=""), 404, 0.01)
        requests.request_completed(SampleRequest(method=f"FOO{i}"), 405, 0.01)
    requests.flush()
    grown = len(next(iter(metrics.HTTP_REQUESTS.collect())).samples) - before
    assert grown <= 4  # each series has two samples: the count and when it was made
    assert len(requests._bound) == 0


def families() -> list[Any]:
    return [next(iter(metric.describe())) for metric in metrics.DECLARED]


def test_metrics_follow_the_naming_rules() -> None:
    for family in families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert re.fullmatch(r"plaza_[a-z]+(_[a-z]+)+", name), name
        assert name.endswith("_total") == (family.type == "counter"), name
        assert not re.search(r"_(ms|milliseconds|minutes|hours|kb|mb|percent)(_|$)", name), name
        if family.type == "histogram" or "duration" in name:
            assert name.endswith("_seconds"), name
        assert family.documentation.endswith("."), name


def test_no_label_can_grow_without_bound() -> None:
    bounded = {"method", "route", "status", "kind", "reason", "result", "job", "stream", "group", "family", "domain"}
    bounded |= {"state"}
    for metric in metrics.DECLARED:
        assert set(metric._labelnames) <= bounded, metric


def test_request_times_have_the_usual_buckets() -> None:
    assert metrics.HTTP_DURATION._kwargs["buckets"] == (
        0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
    )  # fmt: skip


def test_prometheus_can_parse_the_metrics() -> None:
    shown = {family.name for family in text_string_to_metric_families(metrics.exposition().decode())}
    assert {family.name for family in families()} <= shown
    assert "process_cpu_seconds" in shown


PARENT = """
    import os, signal, sys
    from pathlib import Path
    from plaza.core import metrics
    limited = metrics.HTTP_RATE_LIMITED.labels("write")  # modules keep such objects from before
    metrics.share(Path(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children are gone at once
    for when in sys.stdin:
        if os.fork() == 0:
            limited.inc(3)
            metrics.HTTP_IN_FLIGHT.set(2)
            metrics.JOB_DURATION.labels("tidy").observe(0.2)
            metrics.JOB_LAST_SUCCESS.labels("tidy").set(float(when))
            print(os.getpid(), flush=True)
            signal.pause()
"""


class SharingProcess:
    """A process that shares its metrics with the children that it forks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PARENT), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._children: list[int] = []

    def fork(self, when: int) -> int:
        """Fork a child that counts. Returns its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{when}\n")
        self._process.stdin.flush()
        self._children.append(int(self._process.stdout.readline()))
        return self._children[-1]

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_running(pid))

    def end(self) -> None:
        for pid in filter(is_running, self._children):
            self.kill(pid)
        self._process.communicate()


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[SharingProcess]:
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "counter_1.db").write_bytes(b"from an earlier start")
    process = SharingProcess(folder)
    yield process
    process.end()


def shown(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, float]:
    with monkeypatch.context() as patch:
        patch.setenv(metrics.FOLDER_VARIABLE, str(folder))
        text = metrics.exposition().decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith(("_total", "_flight", "_sum", "_count", "_timestamp_seconds"))
        and sample.labels.items() <= {"kind": "write", "job": "tidy"}.items()
    }


def test_any_process_returns_the_metrics_of_all_including_ended_ones(
    sharing: SharingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = sharing.fork(100), sharing.fork(50)
    both = shown(monkeypatch, sharing.folder)
    assert both["plaza_http_rate_limited_total"] == 6
    assert both["plaza_http_requests_in_flight"] == 4
    assert both["plaza_job_last_success_timestamp_seconds"] == 100
    sharing.kill(first)
    for _ in range(2):  # the second time from the folded file
        one = shown(monkeypatch, sharing.folder)
        assert one["plaza_http_rate_limited_total"] == 6
        assert one["plaza_job_duration_seconds_count"] == 2
        assert one["plaza_job_duration_seconds_sum"] == pytest.approx(0.4)
        assert one["plaza_job_last_success_timestamp_seconds"] == 100
        assert one["plaza_http_requests_in_flight"] == 2


def test_restarts_do_not_accumulate_files(sharing: SharingProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    files = set[int]()
    for i in range(3):
        sharing.kill(sharing.fork(i))
        assert shown(monkeypatch, sharing.folder)["plaza_http_rate_limited_total"] == 3 * (i + 1)
        files.add(len(list(sharing.folder.glob("*.db"))))
    assert len(files) == 1


async def test_round_trips_and_reconnects_are_counted(valkey: Valkey, place: Server | Cluster) -> None:
    metrics.sample()
    trips, lost = number("plaza_valkey_round_trips_total"), number("plaza_valkey_reconnects_total")
    await asyncio.gather(*(valkey.call("GET", f"nothing:{i}") for i in range(10)))
    metrics.sample()
    assert number("plaza_valkey_round_trips_total") == trips + 10
    assert number("plaza_valkey_calls_in_flight") == 0
    nodes = place.nodes if isinstance(place, Cluster) else [place]
    for node in nodes:
        with node.redis_client() as operator:
            operator.client_kill_filter(_type="normal", skipme=True)
    await eventually(partial(_back, valkey, lost, len(nodes)))


async def _back(valkey: Valkey, lost: float, nodes: int) -> bool:
    with contextlib.suppress(Unavailable):
        await asyncio.gather(*(node.call("PING") for node in valkey.primaries()))
    metrics.sample()
    return number("plaza_valkey_reconnects_total") >= lost + nodes


async def test_commands_without_a_reply_are_counted() -> None:
    with running_server() as server:
        async with within_time_limit(), metrics_sampling(0.01):
            valkey = await connect_for_test(server.url, timeout=0.3)
            metrics.sample()
            before = number("plaza_valkey_errors_total")
            server.pause()
            with pytest.raises(Unavailable):
                await valkey.call("PING")
            server.resume()
            await eventually(lambda: number("plaza_valkey_errors_total") > before)
            await valkey.close()


async def test_sql_transactions_are_counted_by_kind_and_end(tmp_path: Path) -> None:
    sql = await Sql.open(Settings(data_dir=tmp_path))
    ends = [("read", "done"), ("write", "done"), ("write", "failed")]
    before = [number("plaza_sql_transactions_total", kind=kind, result=result) for kind, result in ends]
    async with sql.read(), sql.begin():
        pass
    with pytest.raises(ZeroDivisionError):
        async with sql.begin():
            raise ZeroDivisionError
    await sql.close()
    after = [number("plaza_sql_transactions_total", kind=kind, result=result) for kind, result in ends]
    assert after == [count + 1 for count in before]
