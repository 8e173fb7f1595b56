"""Admission control: under overload a process refuses some requests at once and answers the others in time.

Without it, every request that arrives starts. All of them share the event loop, so each takes as long as all together,
and clients give up on responses that were computed for them. Health checks wait like the rest.

`AdmissionQueue` decides. It is the only place where requests wait for long: the event loop reads every socket in each
turn, and what runs in a turn is limited there. Decision 22 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

from plaza.core.errors import Unavailable
from plaza.core.http.admission_queue import AdmissionQueue
from plaza.core.http.exchange import Exchange
from plaza.core.http.headers import Cors, Headers
from plaza.core.http.raw_responses import RawResponse, new_request_id

# Always started at once: a busy process must not be restarted, or lose its traffic, because it is busy.
HEALTH_PATHS = ("/healthz", "/readyz", "/ping", "/metrics")
# A write may wait longer than a read: its client did something that a refusal may lose.
WRITE_FACTOR = 2
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))


class ServerOverloaded(Unavailable):
    title, code = "The server is overloaded", "overloaded"


def overloaded_response(*, close: bool = False) -> RawResponse:
    return RawResponse(ServerOverloaded("Too many requests are waiting. Try again later."), close=close)


class ExchangeHandler(Protocol):
    """Handles requests: the application."""

    async def handle(self, exchange: Exchange) -> None: ...


class AdmissionControl:
    """Lets requests to an application wait in an `AdmissionQueue`, but not health checks.

    An event stream counts as running only until it begins: an open one does nothing for most of the time.
    """

    def __init__(
        self,
        app: ExchangeHandler,
        queue: AdmissionQueue,
        read_seconds: float,
        root_path: str = "",
        cors: Cors | None = None,
    ) -> None:
        self._app = app
        self._cors = cors
        self._response = overloaded_response()
        self._queue = queue
        self.read_seconds = read_seconds
        self._health = frozenset(f"{root}{path}" for root in ("", root_path) for path in HEALTH_PATHS)

    async def handle(self, exchange: Exchange) -> None:
        """Run the application for a request, when the process can."""
        queue = self._queue
        if exchange.path in self._health:
            await self._app.handle(exchange)
            return
        if exchange.arrived:  # `refuses` let it in
            queue.arriving -= 1
        if not await queue.enter(exchange.arrived or monotonic(), self._wait_seconds(exchange.method)):
            response, request_id = self._response, new_request_id()
            headers = [*response.headers(request_id), *self.cors_headers(exchange)]
            await exchange.respond(response.status, headers, (), response.body(request_id))
            return
        has_left = False

        def leave() -> None:
            nonlocal has_left
            if not has_left:
                has_left = True
                queue.leave()

        exchange.on_event_stream = leave
        try:
            await self._app.handle(exchange)
        finally:
            leave()

    def cors_headers(self, exchange: Exchange) -> Headers:
        """The headers with which scripts of other origins can read that they must wait."""
        return [] if self._cors is None else self._cors.headers(exchange.headers)

    def refuses(self, exchange: Exchange) -> bool:
        """Whether to refuse a request on arrival, because it would wait too long. If so, call `refuse_later`."""
        return exchange.path not in self._health and not self._queue.arrive(self._wait_seconds(exchange.method))

    def refuse_later(self, respond: Callable[[], None]) -> None:
        """Call `respond` after `REFUSAL_SECONDS`, or later if many are refused."""
        self._queue.refuse_later(respond)

    def _wait_seconds(self, method: str) -> float:
        return self.read_seconds if method in SAFE_METHODS else self.read_seconds * WRITE_FACTOR
