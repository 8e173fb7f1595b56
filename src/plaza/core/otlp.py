"""Sends spans to an OpenTelemetry collector by OTLP over HTTP. Import it only if `PLAZA_OTLP_ENDPOINT` is set.

Spans are encoded with OpenTelemetry's own message types and sent in batches, in the event loop. Its SDK would take
three times as much CPU, and a thread that competes with requests for the interpreter.

If the collector does not respond, spans are dropped: at most `QUEUE_SPANS` wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final
from urllib.parse import unquote

import aiohttp
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from plaza import __version__
from plaza.core.tracing import Attributes, FinishedSpan

TRACES_PATH: Final = "/v1/traces"
QUEUE_SPANS: Final = 8192
# Encoding a batch takes about 2 ms, in which no request is served.
BATCH_SPANS: Final = 256
DELAY_SECONDS: Final = 2.0
TIMEOUT_SECONDS: Final = 5.0

_KINDS: Final = {
    "internal": Span.SpanKind.SPAN_KIND_INTERNAL,
    "server": Span.SpanKind.SPAN_KIND_SERVER,
    "client": Span.SpanKind.SPAN_KIND_CLIENT,
    "consumer": Span.SpanKind.SPAN_KIND_CONSUMER,
}
_FAILED: Final = Status(code=Status.StatusCode.STATUS_CODE_ERROR)

log = structlog.get_logger("plaza.tracing")


def traces_url(endpoint: str) -> str:
    """Return the address for traces of a collector's base address."""
    return endpoint.rstrip("/").removesuffix(TRACES_PATH) + TRACES_PATH


class OtlpSink:
    """Sends spans every two seconds. Close it.

    Headers, such as the collector's credentials, and further attributes come from OpenTelemetry's own variables.
    """

    def __init__(self, endpoint: str, environ: Mapping[str, str] = os.environ) -> None:
        self._url = traces_url(endpoint)
        self._headers = {**_pairs(environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")), "content-type": _PROTOBUF}
        self._resource = _resource(environ)
        self._waiting: deque[FinishedSpan] = deque(maxlen=QUEUE_SPANS)  # the oldest ones are dropped
        self._session: aiohttp.ClientSession | None = None
        self._is_down = False
        self._closing = asyncio.Event()
        self._sending = asyncio.create_task(self._keep_sending())

    def export(self, spans: Sequence[FinishedSpan]) -> None:
        """Queue spans."""
        self._waiting.extend(spans)

    async def close(self) -> None:
        """Send what is queued, once, and stop."""
        self._closing.set()
        await self._sending
        if self._session is not None:
            await self._session.close()

    async def _keep_sending(self) -> None:
        is_last = False
        while not is_last:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DELAY_SECONDS):
                    await self._closing.wait()
            is_last = self._closing.is_set()
            await self._send_all()

    async def _send_all(self) -> None:
        """Send the queue in batches. After a failure the rest waits for the next turn."""
        while self._waiting:
            batch = list(islice(self._waiting, BATCH_SPANS))
            for _ in batch:
                self._waiting.popleft()
            reason = await self._post(encode(batch, self._resource))
            if reason:
                if not self._is_down:  # once, not every two seconds
                    log.warning("traces_not_sent", reason=reason, url=self._url)
                self._is_down = True
                return
            self._is_down = False

    async def _post(self, body: bytes) -> str:
        """Send a request. Returns why it failed; empty if it did not."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))
        try:
            async with self._session.post(self._url, data=body, headers=self._headers) as response:
                return "" if response.ok else f"status {response.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return type(error).__name__


_PROTOBUF: Final = "application/x-protobuf"


def encode(spans: Sequence[FinishedSpan], resource: Resource) -> bytes:
    """Return the body of a request. About 10 µs per span."""
    scope_spans = ScopeSpans(scope=_SCOPE, spans=map(_span, spans))
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope_spans])])
    return bytes(request.SerializeToString())


_SCOPE: Final = InstrumentationScope(name="plaza", version=__version__)


def _span(span: FinishedSpan) -> Span:
    attributes = _attributes(span.attributes)
    if span.error:
        attributes.append(_attribute("error.type", span.error))
    return Span(
        name=span.name,
        kind=_KINDS[span.kind],
        trace_id=span.trace_id.to_bytes(16, "big"),
        span_id=span.span_id.to_bytes(8, "big"),
        parent_span_id=span.parent_id.to_bytes(8, "big") if span.parent_id else b"",
        start_time_unix_nano=span.started_ns,
        end_time_unix_nano=span.ended_ns,
        attributes=attributes,
        status=_FAILED if span.error else None,
    )


def _attributes(attributes: Attributes) -> list[KeyValue]:
    return [_attribute(name, value) for name, value in attributes.items()]


@lru_cache(4096)
def _attribute(name: str, value: str | int) -> KeyValue:
    text_or_number = AnyValue(string_value=value) if isinstance(value, str) else AnyValue(int_value=value)
    return KeyValue(key=name, value=text_or_number)


def _resource(environ: Mapping[str, str]) -> Resource:
    """Describe this process."""
    attributes: dict[str, str | int] = {
        "service.name": "plaza",
        "service.version": __version__,
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        **_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", "")),
    }
    if name := environ.get("OTEL_SERVICE_NAME"):
        attributes["service.name"] = name
    return Resource(attributes=_attributes(attributes))


def _pairs(text: str) -> dict[str, str]:
    """Read `name=value,name=value`, with percent-encoded values."""
    parts = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, _, value in parts}
