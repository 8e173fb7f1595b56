"""Logs on stderr, and the request log.

A line is JSON, or text on a terminal. Secrets never reach the log: values whose name says so (`password`,
`authorization`, …), passwords in URLs and everything that looks like a token are replaced before a line is written, and
tracebacks do not show local variables.

Each request gets one line. It does not go through structlog, whose processors cost more than many requests: its fields
are fixed, so it is encoded directly, and the lines of one event loop iteration are written together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, MutableMapping
from typing import Any, Protocol, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from plaza.core import metrics
from plaza.core.metrics import exposition
from plaza.core.prometheus import Counter, Histogram
from plaza.core.tracing import current_trace_id

__all__ = ["RequestLog", "configure_logs", "exposition", "metrics_sampling"]

HIDDEN = "[hidden]"
# A pipe writes this much at once, so lines of several processes do not mix.
ATOMIC_BYTES = 4096
MAX_PATH_CHARACTERS = 1024
# Requests that are not in the metrics yet. To count more at once would hold the event loop for longer than 0.3 ms.
MAX_UNCOUNTED = 500
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SECRET_NAME = re.compile(
    r"authori[sz]ation|passw|secret|token|cookie|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|credential",
    re.IGNORECASE,
)
_SECRET_TEXT = re.compile(
    r"(?P<url>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/]+@"  # a password inside a URL
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*"  # a JSON web token
    r"|(?P<scheme>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}",
    re.IGNORECASE,
)


class _Stderr:
    """The current `sys.stderr` at each write, so that replacing it (as tests do) has an effect.

    Write errors are ignored: a full disk or a closed pipe must not stop the process.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def configure_logs(stream: TextIO | None = None, *, pretty: bool | None = None, level: int = logging.INFO) -> None:
    """Write Plaza's and the libraries' log lines to the stream (stderr), in one format."""
    out = stream or cast(TextIO, _Stderr())
    if pretty is None:
        pretty = out.isatty()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_trace_id,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    last: list[Processor]
    if pretty:
        # The default tracebacks would show local variables.
        show = structlog.dev.ConsoleRenderer(
            colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback, timestamp_key="time"
        )
        last = [structlog.processors.format_exc_info, hide_secrets, show]
    else:
        last = [structlog.processors.format_exc_info, hide_secrets, structlog.processors.JSONRenderer(_as_json)]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,  # loggers are created at import, before this configuration
    )
    _route_libraries(out, shared, last, level)


def _route_libraries(out: TextIO, shared: list[Processor], last: list[Processor], level: int) -> None:
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # It logs every migration state at each start.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def add_trace_id(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A structlog processor that adds the id of the present trace, if there is one."""
    if trace_id := current_trace_id():
        event["trace_id"] = trace_id
    return event


def hide_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A structlog processor that replaces secrets."""
    return {name: _hidden(name, value) for name, value in event.items()}


def _hidden(name: str, value: Any) -> Any:
    if isinstance(name, str) and _SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, str):
        return _SECRET_TEXT.sub(_mask, value)
    if isinstance(value, MutableMapping):
        return {key: _hidden(key, inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hidden("", inner) for inner in value]
    if isinstance(value, (bytes, BaseException)):
        return _hidden("", str(value) if isinstance(value, BaseException) else value.decode(errors="replace"))
    return value


def _mask(match: re.Match[str]) -> str:
    if match["url"]:
        return f"{match['url']}{HIDDEN}@"
    return f"{match['scheme'] or ''}{HIDDEN}"


def _as_json(event: dict[str, Any], **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


class _Line(msgspec.Struct, omit_defaults=True):
    """The fields of a request's log line."""

    time: str
    level: str
    event: str
    method: str
    path: str
    status: int
    ms: float
    trips: int
    valkey_ms: float
    request_id: str
    route: str = ""
    user: str = ""
    trace_id: str = ""


class CompletedRequest(Protocol):
    """The attributes of a request that are counted and logged."""

    template: str
    request_id: str
    usage: Any
    actor: Any
    streams: bool

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


@contextlib.asynccontextmanager
async def metrics_sampling(seconds: float = 1.0) -> AsyncIterator[None]:
    """Update this process's metrics once a second, because any process may serve the metrics of all."""

    async def sample() -> None:
        while True:
            await asyncio.sleep(seconds)
            metrics.sample()

    task = asyncio.create_task(sample())
    try:
        yield
    finally:
        task.cancel()
        metrics.sample()


class RequestLog:
    """Counts each completed request and writes its log line."""

    def __init__(self, stream: TextIO | None = None, *, pretty: bool | None = None) -> None:
        self._out = stream or sys.stderr
        self._pretty = self._out.isatty() if pretty is None else pretty
        self._lines: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode
        # Finding a metric by its labels costs more than counting, so metrics are cached.
        self._bound: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._second = 0
        self._second_text = ""

    def request_completed(self, request: CompletedRequest, status: int, seconds: float) -> None:
        method, route = request.method, request.template
        found = self._bound.get((method, route, status))
        if found is None:
            found = self._bind(method, route, status)
        # The duration of a stream is not a latency.
        metrics.COMPLETED_REQUESTS.append((*found, None if request.streams else seconds))
        if len(metrics.COMPLETED_REQUESTS) >= MAX_UNCOUNTED:
            metrics.sample()
        self._write(request, status, seconds)

    def _bind(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        # Clients may send any method and path. Only known ones become labels, so the number of series is bounded.
        known = method in _METHODS
        labels = (method if known else "other", route or "none", f"{status // 100}xx")
        found = (metrics.HTTP_REQUESTS.labels(*labels), metrics.HTTP_DURATION.labels(*labels))
        if known:
            self._bound[method, route, status] = found
        return found

    def _write(self, request: CompletedRequest, status: int, seconds: float) -> None:
        usage, actor = request.usage, request.actor
        line = _Line(
            time=self._now(),
            level="info" if status < 500 else "error",
            event="request",
            method=request.method,
            path=request.path[:MAX_PATH_CHARACTERS],
            status=status,
            ms=round(seconds * 1000, 3),
            trips=usage.trips,
            valkey_ms=round(usage.seconds * 1000, 3),
            request_id=request.request_id,
            route=request.template,
            user="" if actor is None else actor.name,
            trace_id="" if usage.trace is None else usage.trace.id,
        )
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        self._lines.append(_pretty(line) if self._pretty else self._encode(line))

    def _now(self) -> str:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._second_text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._second_text}.{int((now - second) * 1000):03d}Z"

    def flush(self) -> None:
        """Write the lines of this event loop iteration. Also called at shutdown."""
        lines, self._lines = self._lines, []
        chunk: list[bytes] = []
        size = 0
        for line in lines:
            if chunk and size + len(line) >= ATOMIC_BYTES:
                self._put(chunk)
                chunk, size = [], 0
            chunk.append(line)
            size += len(line) + 1
        if chunk:
            self._put(chunk)

    def _put(self, lines: list[bytes]) -> None:
        # A closed pipe or a full disk must not stop the process.
        with contextlib.suppress(OSError):
            self._out.write(b"\n".join((*lines, b"")).decode())
            self._out.flush()


def _pretty(line: _Line) -> bytes:
    who = f" {line.user}" if line.user else ""
    path = line.path if line.path.isprintable() else ascii(line.path)  # a terminal would interpret control characters
    return (
        f"{line.time} {line.method} {path} {line.status} {line.ms:.1f} ms, "
        f"{line.trips} round trips {line.valkey_ms:.1f} ms{who} {line.request_id}"
    ).encode()
