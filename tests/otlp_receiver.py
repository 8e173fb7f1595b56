"""A real receiver of traces by OTLP over HTTP, which decodes what arrives."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    seconds: float
    attributes: dict[str, Any]
    is_error: bool


@dataclass
class OtlpReceiver:
    """What arrived: the spans, the resource of the last one, and all bytes."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    headers: dict[str, str] = field(default_factory=dict)
    received: bytes = b""

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        self.received += body
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = _attributes(part.resource.attributes)
            self.spans += [_span(span) for scope in part.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def of_trace(self, trace: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace == trace]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _span(span: Any) -> ReceivedSpan:
    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return ReceivedSpan(span.name, span.kind, *ids, seconds, _attributes(span.attributes), span.status.code == 2)


@contextlib.contextmanager
def receiving_spans() -> Iterator[OtlpReceiver]:
    """Run a receiver on a free loopback port."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.take(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
