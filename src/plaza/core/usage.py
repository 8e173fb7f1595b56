"""What one request has asked of Valkey : for its `Server-Timing`, its log line, and tests that count round trips."""

from __future__ import annotations

from contextvars import ContextVar


class Usage:
    """Round trips made, and the time spent waiting for them."""

    __slots__ = ("seconds", "trips")

    def __init__(self) -> None:
        self.trips = 0
        self.seconds = 0.0


USAGE: ContextVar[Usage | None] = ContextVar("usage", default=None)
