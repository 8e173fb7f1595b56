"""Traces, as a collector receives them by OTLP over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from plaza.app import Plaza, running
from plaza.core import otlp
from plaza.core.errors import SettingError
from plaza.core.functions import Functions
from plaza.core.keyspace import Layout, use_layout
from plaza.core.leases import JOBS, Lease, Leases
from plaza.core.otlp import OtlpSink, encode
from plaza.core.settings import Settings
from plaza.core.sql_tracing import summarize
from plaza.core.telemetry import configure_logs
from plaza.core.timers import Timer, Timers
from plaza.core.tracing import MAX_CHILDREN, TRACING, FinishedSpan, RemoteParent, Tracer, traced
from plaza.core.valkey import ReplyError, connect
from tests.databases import with_tables
from tests.http_servers import client_of
from tests.otlp_receiver import OtlpReceiver, receiving_spans
from tests.processes import run_program
from tests.servers import Cluster, Server
from tests.webhooks.receiver import receiving

API_KEY = "an-api-key-that-no-span-may-show"
PASSWORD = "a password that no span may show"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-b7ad6b7169203331-{flags}" for flags in ("01", "00"))
SERVER, CLIENT = 2, 3


@contextlib.asynccontextmanager
async def tracing_plaza(place: Server | Cluster, data_dir: Path, endpoint: str, **more: Any) -> AsyncIterator[Plaza]:
    """All of Plaza, tracing everything by default. At the end, every span has been sent."""
    settings = Settings(
        data_dir=with_tables(data_dir),
        valkey_url=place.url,
        rate_limits=False,
        api_key=API_KEY,
        webhooks_private=True,
        otlp_endpoint=endpoint,
        **{"otlp_sampling": 1.0, **more},
    )
    async with running(settings) as plaza:
        yield plaza
    use_layout(Layout.PLAIN)


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with receiving_spans() as receiver:
        yield receiver


class SpanList(list[FinishedSpan]):
    """A sink that keeps the spans."""

    export = list.extend


@pytest.fixture
def spans() -> Iterator[SpanList]:
    """The spans of this process, all sampled."""
    spans = SpanList()
    TRACING.tracer = Tracer(spans, 1.0)
    yield spans
    TRACING.tracer = None


async def test_a_request_its_valkey_calls_and_its_statements_are_one_trace(
    place: Server | Cluster, tmp_path: Path, collector: OtlpReceiver, capsys: pytest.CaptureFixture[str]
) -> None:
    async with tracing_plaza(place, tmp_path, collector.url) as plaza, client_of(plaza.app) as http:
        body = {"username": "margarethe", "password": PASSWORD}
        registered = (await http.post("/auth/register", json=body)).json()
        token = registered["access_token"]
        headers = {"authorization": f"Bearer {token}", "traceparent": SAMPLED}
        posted = await http.post("/posts", json={"content": "a hidden text"}, headers=headers)
        assert posted.status_code == 201
        await http.get("/shop/items")
        assert (await http.get("/posts/hidden-path/unknown?token=hidden-query")).status_code == 404
    assert collector.paths == {"/v1/traces"}
    assert collector.resource["service.name"] == "plaza"

    (post,) = collector.named("POST /posts")
    assert (post.trace, post.parent, post.kind) == (TRACE, "b7ad6b7169203331", SERVER)
    assert post.attributes["http.route"] == "/posts"
    assert post.attributes["http.response.status_code"] == 201
    calls = [span for span in collector.of_trace(TRACE) if span.parent == post.id]
    assert "FCALL social_create_post" in {span.name for span in calls}
    assert {span.kind for span in calls} == {CLIENT}
    assert all(0 <= span.seconds <= post.seconds for span in calls)
    (items,) = collector.named("GET /shop/items")
    statements = [span for span in collector.of_trace(items.trace) if span.attributes.get("db.system.name") == "sqlite"]
    assert statements
    assert all(span.name.startswith("SELECT shop_") for span in statements)
    (missing,) = collector.named("GET")
    assert missing.attributes["http.response.status_code"] == 404

    hidden = ("margarethe", PASSWORD, token, posted.json()["id"], "hidden", API_KEY, "127.0.0.1")
    assert [text for text in hidden if text.encode() in collector.received] == []
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["trace_id"] for line in lines if line.get("path") == "/posts"] == [TRACE]


async def test_a_delivery_tells_its_receiver_the_trace(server: Server, tmp_path: Path, collector: OtlpReceiver) -> None:
    async with (
        tracing_plaza(server, tmp_path, collector.url) as plaza,
        receiving() as receiver,
        client_of(plaza.app, **{"x-api-key": API_KEY}) as http,
    ):
        webhook = {"url": f"{receiver.url}/hidden", "types": ["post.created"]}
        made = (await http.post("/webhooks", json=webhook)).json()
        await http.post(f"/webhooks/{made['id']}/test", headers={"traceparent": SAMPLED})
    (received,) = receiver.requests
    (delivery,) = collector.named("webhook delivery")
    assert received.headers["traceparent"] == f"00-{delivery.trace}-{delivery.id}-01"
    assert delivery.trace == TRACE
    assert delivery.attributes["http.response.status_code"] == 200
    assert b"hidden" not in collector.received
    assert made["secret"].encode() not in collector.received


async def test_a_caller_that_is_not_trusted_cannot_decide_what_is_sampled(
    server: Server, tmp_path: Path, collector: OtlpReceiver
) -> None:
    async with (
        tracing_plaza(server, tmp_path, collector.url, otlp_sampling=0.0) as plaza,
        client_of(plaza.app) as http,
    ):
        await http.get("/ping", headers={"traceparent": SAMPLED})
    assert collector.spans == []


async def test_a_trusted_proxy_decides_what_is_sampled(server: Server, tmp_path: Path, collector: OtlpReceiver) -> None:
    proxies = {"trusted_proxies": ("127.0.0.1",), "otlp_sampling": 0.0}
    async with tracing_plaza(server, tmp_path, collector.url, **proxies) as plaza, client_of(plaza.app) as http:
        for traceparent in (UNSAMPLED, "nonsense", SAMPLED):
            await http.get("/ping", headers={"traceparent": traceparent})
    assert [span.trace for span in collector.named("GET /ping")] == [TRACE]


async def test_requests_are_served_while_the_collector_is_away(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "DELAY_SECONDS", 0.01)  # it tries while requests are served
    async with tracing_plaza(server, tmp_path, "http://127.0.0.1:1") as plaza, client_of(plaza.app) as http:
        assert (await http.get("/feed/explore")).status_code == 200


async def test_the_collector_gets_the_headers_and_names_of_the_environment(collector: OtlpReceiver) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc, x-tenant=7",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        "OTEL_SERVICE_NAME": "community",
    }
    sink = OtlpSink(f"{collector.url}/v1/traces/", variables)
    trace = Tracer(sink, 1.0).start()
    assert trace is not None
    trace.end("job tidy", "internal", {}, "ValueError")
    await sink.close()
    assert (collector.headers["authorization"], collector.headers["x-tenant"]) == ("Bearer abc", "7")
    assert collector.resource["service.name"] == "community"
    assert collector.resource["deployment.environment.name"] == "test"
    assert collector.spans[0].is_error


def test_an_encoded_span_has_all_its_fields() -> None:
    """Of texts longer than 127 bytes too, whose length takes two bytes."""
    ids = {"trace_id": 2**127 + 1, "span_id": 2**63 + 1}
    attributes: dict[str, str | int] = {
        "plaza.request_id": "r" * 200,
        "http.route": "/posts",
        "http.response.status_code": 503,
    }
    root = FinishedSpan(
        "GET " + "x" * 300,
        "server",
        **ids,
        parent_id=0,
        started_ns=7,
        ended_ns=2**60,
        attributes=attributes,
        error="503",
    )
    child = FinishedSpan("GET", "client", **ids, parent_id=2**63 + 2, started_ns=8, ended_ns=9, attributes={}, error="")
    resource = Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value="plaza"))])
    (group,) = ExportTraceServiceRequest.FromString(encode([root, child], resource)).resource_spans
    (scope,) = group.scope_spans
    assert (group.resource, scope.scope.name) == (resource, "plaza")
    for span, read in zip((root, child), scope.spans, strict=True):
        parent = span.parent_id.to_bytes(8, "big") if span.parent_id else b""
        assert (read.name, read.parent_span_id) == (span.name, parent)
        assert (int.from_bytes(read.trace_id, "big"), int.from_bytes(read.span_id, "big")) == tuple(ids.values())
        assert (read.start_time_unix_nano, read.end_time_unix_nano) == (span.started_ns, span.ended_ns)
        found = {each.key: each.value.string_value or each.value.int_value for each in read.attributes}
        assert found == {**span.attributes, **({"error.type": span.error} if span.error else {})}
        assert (read.kind, read.status.code) == ((2, 2) if span is root else (3, 0))


async def test_a_job_and_its_calls_are_a_trace(server: Server, spans: SpanList) -> None:
    valkey = await connect(server.url)
    functions = Functions(valkey, [JOBS])
    await functions.load()

    async def tidy(_: Lease) -> str:
        await valkey.call("GET", "hidden")
        with pytest.raises(ReplyError):
            await valkey.call("HGET", "lease:tidy", "hidden")
        await valkey.batch([("GET", "a"), ("GET", "b")])
        structlog.get_logger().info("swept")
        return ""

    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]):
        await Timers(functions, Leases(functions, 3), "worker").run_if_due(Timer("tidy", 60, tidy))
    await valkey.close()
    *calls, job = spans
    assert job.name == "job tidy"
    assert {span.parent_id for span in calls} == {job.span_id}
    assert [(span.name, span.error) for span in calls][:3] == [("GET", ""), ("HGET", "WRONGTYPE"), ("GET", "")]
    assert calls[2].attributes["db.operation.batch.size"] == 2


async def test_log_lines_inside_a_trace_have_its_id(spans: SpanList, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(pretty=False)
    with traced("job tidy", "internal"):
        structlog.get_logger().info("inside")
    structlog.get_logger().info("outside")
    inside, outside = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert inside["trace_id"] == f"{spans[0].trace_id:032x}"
    assert "trace_id" not in outside


async def test_a_failed_job_is_an_error_without_its_text(spans: SpanList) -> None:
    with pytest.raises(ValueError, match="secret"), traced("job tidy", "internal"):
        raise ValueError("secret")
    assert spans[0].error == "ValueError"


async def test_a_trace_of_many_calls_is_bounded(spans: SpanList) -> None:
    with traced("outer", "internal"):
        for _ in range(MAX_CHILDREN + 5):
            with traced("inner", "internal"):
                await asyncio.sleep(0)
    assert len(spans) == MAX_CHILDREN + 1
    assert spans[-1].attributes["plaza.calls_not_shown"] == 5


@pytest.mark.parametrize(
    ("header", "is_sampled"),
    [
        (SAMPLED, True),
        (UNSAMPLED, False),
        (f"cc-{TRACE}-b7ad6b7169203331-09-later", True),
        (f"ff-{TRACE}-b7ad6b7169203331-01", None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", None),
        (f"{SAMPLED}\n", None),
        ("", None),
    ],
)
def test_traceparent_is_read_as_the_standard_says(header: str, is_sampled: bool | None) -> None:
    parent = RemoteParent.from_header(header)
    assert (None if parent is None else parent.is_sampled) is is_sampled


def test_a_statement_is_named_by_operation_and_table() -> None:
    statement = "SELECT a FROM shop_item WHERE name = 'hidden'"
    assert summarize(statement, "sqlite")[0] == "SELECT shop_item"
    assert "hidden" not in str(summarize(statement, "sqlite"))
    assert summarize("COMMIT", "sqlite")[0] == "COMMIT"


@pytest.mark.parametrize("settings", [{"otlp_endpoint": "collector:4318"}, {"otlp_sampling": 1.5}])
def test_a_wrong_setting_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match="PLAZA_OTLP_"):
        Settings(**settings)


async def test_without_a_collector_nothing_of_opentelemetry_is_imported() -> None:
    await run_program(
        """
        import sys, plaza.serve
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
        """
    )
