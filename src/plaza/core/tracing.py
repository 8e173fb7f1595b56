"""Traces: one span per request, job, webhook delivery, Valkey call and SQL statement.

A request, job or delivery decides at its start whether it is sampled. If it is, its `Trace` is in the usage of the
request (`REQUEST_USAGE`), where the connection to Valkey and the SQL engines find it. Everything else costs one check
of an attribute. When a trace ends, its spans go to a sink; `core/otlp.py` has the one that sends them. This module
imports nothing of OpenTelemetry.

Spans contain names of routes, commands, functions, tables, jobs and event types. They never contain keys, arguments,
parameters, paths, query strings, addresses or usernames.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import getrandbits, random
from time import monotonic, time_ns
from typing import Final, Literal, Protocol

import msgspec
from msgspec import Struct, field

from plaza.core.valkey.calls import REQUEST_USAGE, PendingCall, ReplyError, RequestUsage, command_words

SpanKind = Literal["internal", "server", "client", "consumer"]
Attributes = Mapping[str, str | int]

# A daily job may send a million commands. The first ones show what it does.
MAX_CHILDREN: Final = 200

# W3C Trace Context: version, trace, parent, flags. Later versions may append fields.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED: Final = 0x01
_VERSION_OF_LIBRARY: Final = re.compile(r"_[0-9a-f]{8}$")


class FinishedSpan(msgspec.Struct, frozen=True, gc=False):
    """A span as the sink gets it. Times are Unix nanoseconds; `error` is empty if it succeeded."""

    name: str
    kind: SpanKind
    trace_id: int
    span_id: int
    parent_id: int
    started_ns: int
    ended_ns: int
    attributes: Attributes
    error: str


class SpanSink(Protocol):
    """Takes finished spans. It never blocks and never raises."""

    def export(self, spans: Sequence[FinishedSpan]) -> None: ...


class RemoteParent(Struct, frozen=True):
    """The span of the caller, from its `traceparent` header."""

    trace_id: int
    span_id: int
    is_sampled: bool

    @classmethod
    def from_header(cls, traceparent: str) -> RemoteParent | None:
        """Return the caller's span; None if the header is absent or not valid."""
        match = _TRACEPARENT.fullmatch(traceparent)
        if match is None:
            return None
        trace_id, span_id = int(match[1], 16), int(match[2], 16)
        return cls(trace_id, span_id, bool(int(match[3], 16) & _SAMPLED)) if trace_id and span_id else None


class Trace:
    """A sampled request, job or delivery, with the calls that it made so far."""

    __slots__ = ("_children", "_count", "_ended", "_offset_ns", "_sink", "_started", "parent_id", "span_id", "trace_id")

    def __init__(self, sink: SpanSink, parent: RemoteParent | None = None) -> None:
        self._sink = sink
        self.trace_id = getrandbits(128) if parent is None else parent.trace_id
        self.parent_id = 0 if parent is None else parent.span_id
        self.span_id = getrandbits(64)
        self._started = monotonic()
        self._offset_ns = time_ns() - round(self._started * 1e9)  # the loop's clock does not know the date
        self._children: list[FinishedSpan] = []
        self._count = 0
        self._ended = False

    @property
    def id(self) -> str:
        return f"{self.trace_id:032x}"

    def add(
        self,
        name: str,
        kind: SpanKind,
        started: float,
        ended: float,
        attributes: Attributes,
        error: str = "",
        span_id: int = 0,
    ) -> None:
        """Add a call that has ended, with its times on the monotonic clock. Calls after the end are not added."""
        self._count += 1
        if self._ended or self._count > MAX_CHILDREN:
            return
        # Commands of one turn of the event loop have the same start, that of the first one.
        times = self._ns(max(started, self._started)), self._ns(ended)
        id = span_id or getrandbits(64)
        self._children.append(FinishedSpan(name, kind, self.trace_id, id, self.span_id, *times, attributes, error))

    def add_valkey_call(self, call: PendingCall, ended: float, reply: object) -> None:
        """Add a call to Valkey. Its name is that of the command, or of the function."""
        packed, _, group, _, started, _ = call
        name, attributes = _named(packed, 1 if group is None else group.count)
        error = ""
        if isinstance(reply, Exception):
            error = reply.code if isinstance(reply, ReplyError) else type(reply).__name__
        self.add(name, "client", started, ended, attributes, error)

    def end(self, name: str, kind: SpanKind, attributes: Attributes, error: str = "") -> None:
        """Hand the span and those of its calls to the sink."""
        self._ended = True
        if self._count > MAX_CHILDREN:
            attributes = {**attributes, "plaza.calls_not_shown": self._count - MAX_CHILDREN}
        times = self._ns(self._started), self._ns(monotonic())
        own = FinishedSpan(name, kind, self.trace_id, self.span_id, self.parent_id, *times, attributes, error)
        self._sink.export([*self._children, own])
        self._children = []

    def _ns(self, seconds: float) -> int:
        return self._offset_ns + round(seconds * 1e9)


class Operation(Struct):
    """A job or delivery in progress. `traceparent` is for requests that it sends; empty if it is not sampled."""

    traceparent: str = ""
    attributes: dict[str, str | int] = field(default_factory=dict)
    error: str = ""


class Tracer:
    """Decides what is sampled, and starts traces."""

    def __init__(self, sink: SpanSink, share: float) -> None:
        self._sink = sink
        self._share = share

    def start(self, traceparent: str = "", *, follows: bool = False) -> Trace | None:
        """Start a trace, or return None if it is not sampled.

        With `follows`, a caller's decision counts. Otherwise a caller could make every request a sampled one, so only
        its ids are used.
        """
        parent = None
        if follows:
            parent = RemoteParent.from_header(traceparent)
            if parent is not None:
                return Trace(self._sink, parent) if parent.is_sampled else None
        if random() >= self._share:
            return None
        return Trace(self._sink, RemoteParent.from_header(traceparent))


class Tracing:
    """The tracer of this process; None while tracing is off."""

    __slots__ = ("tracer",)

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


TRACING: Final = Tracing()


@contextlib.contextmanager
def traced(name: str, kind: SpanKind, **attributes: str | int) -> Iterator[Operation]:
    """Trace a job or a delivery: as a part of the present trace, or as one of its own. Off, it does nothing."""
    usage = REQUEST_USAGE.get()
    if TRACING.tracer is None:
        yield _UNTRACED
    elif usage is not None and usage.trace is not None:
        with _child(usage.trace, name, kind, attributes) as operation:
            yield operation
    elif (trace := TRACING.tracer.start()) is None:
        yield _UNTRACED
    else:
        token = REQUEST_USAGE.set(RequestUsage(trace=trace))
        operation = Operation(_traceparent(trace.trace_id, trace.span_id), attributes)
        try:
            with _recording_error(operation):
                yield operation
        finally:
            REQUEST_USAGE.reset(token)
            trace.end(name, kind, operation.attributes, operation.error)


@contextlib.contextmanager
def _child(trace: Trace, name: str, kind: SpanKind, attributes: dict[str, str | int]) -> Iterator[Operation]:
    span_id, started = getrandbits(64), monotonic()
    operation = Operation(_traceparent(trace.trace_id, span_id), attributes)
    try:
        with _recording_error(operation):
            yield operation
    finally:
        trace.add(name, kind, started, monotonic(), operation.attributes, operation.error, span_id)


@contextlib.contextmanager
def _recording_error(operation: Operation) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        operation.error = type(error).__name__
        raise


def current_trace_id() -> str:
    """Return the id of the present trace; empty if there is none."""
    usage = REQUEST_USAGE.get()
    return "" if usage is None or usage.trace is None else usage.trace.id


def _traceparent(trace_id: int, span_id: int) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-01"


def _named(packed: bytes, count: int) -> tuple[str, Attributes]:
    """Return the span's name of packed commands, and its attributes."""
    words = command_words(packed, 2)
    if words == ["CLIENT", "CACHING"]:  # it precedes a read that is tracked
        words, count = command_words(packed, 5)[3:], count - 1
    return _span_name(words[0], words[1] if words[0].startswith("FCALL") else "", count)


@lru_cache(1024)
def _span_name(command: str, function: str, count: int) -> tuple[str, Attributes]:
    command, function = command.upper(), _VERSION_OF_LIBRARY.sub("", function)
    attributes: dict[str, str | int] = {"db.system.name": "valkey", "db.operation.name": command}
    if function:
        attributes["db.stored_procedure.name"] = function
    if count > 1:
        attributes["db.operation.batch.size"] = count
    return f"{command} {function}".rstrip(), attributes


_UNTRACED: Final = Operation()
