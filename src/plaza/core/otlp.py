"""Sends spans to an OpenTelemetry collector by OTLP over HTTP. Import it only if `PLAZA_OTLP_ENDPOINT` is set.

Spans are encoded with the help of OpenTelemetry's message types and sent in batches, in the event loop. Its SDK would
take ten times as much CPU, and a thread that competes with requests for the interpreter.

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
from struct import Struct
from typing import Final
from urllib.parse import unquote

import aiohttp
import structlog
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from plaza import __version__
from plaza.core.tracing import Attributes, FinishedSpan, SpanKind

TRACES_PATH: Final = "/v1/traces"
QUEUE_SPANS: Final = 8192
# Encoding a batch takes about 0.7 ms, in which no request is served.
BATCH_SPANS: Final = 512
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
    """Return the body of a request, an `ExportTraceServiceRequest`. About 2 µs per span.

    OpenTelemetry's message types encode what spans share, once. A message for each span would take three times as long.
    """
    scope_spans = _field(b"\x0a", _SCOPE) + b"".join([_field(b"\x12", _span(span)) for span in spans])
    resource_spans = _field(b"\x0a", resource.SerializeToString()) + _field(b"\x12", scope_spans)
    return _field(b"\x0a", resource_spans)


_SCOPE: Final = InstrumentationScope(name="plaza", version=__version__).SerializeToString()
# The fields of a `Span` that differ, each after its tag: trace_id, span_id, start and end; and parent_span_id.
_IDS: Final = Struct("<2s16s2s8scQcQ")
_PARENT: Final = b"\x22\x08"
# The only attribute that no two spans share.
_REQUEST_ID: Final = "plaza.request_id"


def _span(span: FinishedSpan) -> bytes:
    trace_id, span_id = span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big")
    ids = _IDS.pack(b"\x0a\x10", trace_id, b"\x12\x08", span_id, b"\x39", span.started_ns, b"\x41", span.ended_ns)
    if span.parent_id:
        ids += _PARENT + span.parent_id.to_bytes(8, "big")
    if _REQUEST_ID not in span.attributes:
        return ids + _shared(span.name, span.kind, span.error, tuple(span.attributes.items()))
    others = tuple([pair for pair in span.attributes.items() if pair[0] != _REQUEST_ID])
    text = _field(b"\x0a", str(span.attributes[_REQUEST_ID]).encode())
    own = _field(b"\x4a", _REQUEST_ID_KEY + _field(b"\x12", text))
    return ids + own + _shared(span.name, span.kind, span.error, others)


@lru_cache(4096)
def _shared(name: str, kind: SpanKind, error: str, attributes: tuple[tuple[str, str | int], ...]) -> bytes:
    """Return the fields of a `Span` that many have, encoded. Encoded messages that follow each other are one."""
    found = _attributes(dict(attributes))
    if error:
        found.append(_attribute("error.type", error))
    status = _FAILED if error else None
    return bytes(Span(name=name, kind=_KINDS[kind], attributes=found, status=status).SerializeToString())


def _field(tag: bytes, content: bytes) -> bytes:
    """Return a field of a message: its tag, the length of its content in groups of seven bits, and the content."""
    length, left = b"", len(content)
    while left > 0x7F:
        length += bytes((left & 0x7F | 0x80,))
        left >>= 7
    return tag + length + bytes((left,)) + content


_REQUEST_ID_KEY: Final = _field(b"\x0a", _REQUEST_ID.encode())


def _attributes(attributes: Attributes) -> list[KeyValue]:
    return [_attribute(name, value) for name, value in attributes.items()]


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
