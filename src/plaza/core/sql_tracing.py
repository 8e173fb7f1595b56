"""Spans of SQL statements. A span has the operation and the table, never the text or its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import ExceptionContext

from plaza.core.tracing import Attributes
from plaza.core.valkey.calls import REQUEST_USAGE

_STARTED: Final = "plaza.started"
_OPERATION: Final = re.compile(r"\s*(\w+)")
_TABLE: Final = re.compile(r"\b(?:FROM|INTO|UPDATE|JOIN)\s+(\w+)", re.IGNORECASE)


def trace_statements(engines: Iterable[Engine]) -> None:
    """Add a span for every statement of these engines that runs inside a trace."""
    for engine in engines:
        event.listen(engine, "before_cursor_execute", _on_start)
        event.listen(engine, "after_cursor_execute", _on_end)
        event.listen(engine, "handle_error", _on_error)


def _on_start(connection: Connection, *_: Any) -> None:
    usage = REQUEST_USAGE.get()
    if usage is not None and usage.trace is not None:
        connection.info[_STARTED] = monotonic()


def _on_end(connection: Connection, cursor: Any, statement: str, *_: Any) -> None:
    _add(connection, statement)


def _on_error(context: ExceptionContext) -> None:
    if context.connection is not None:
        _add(context.connection, context.statement or "", type(context.original_exception).__name__)


def _add(connection: Connection, statement: str, error: str = "") -> None:
    started = connection.info.pop(_STARTED, None)
    usage = REQUEST_USAGE.get()
    if started is not None and usage is not None and usage.trace is not None:
        name, attributes = summarize(statement, connection.dialect.name)
        usage.trace.add(name, "client", started, monotonic(), attributes, error)


@lru_cache(1024)
def summarize(statement: str, dialect: str) -> tuple[str, Attributes]:
    """Return the name of a statement's span, such as `SELECT shop_item`, and its attributes."""
    operation, table = _OPERATION.match(statement), _TABLE.search(statement)
    attributes: dict[str, str | int] = {"db.system.name": dialect}
    if operation:
        attributes["db.operation.name"] = operation[1].upper()
    if table:
        attributes["db.collection.name"] = table[1]
    words = [str(value) for name, value in attributes.items() if name != "db.system.name"]
    return " ".join(words) or dialect, attributes
