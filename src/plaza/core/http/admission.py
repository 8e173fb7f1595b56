"""Admission control: under overload a process refuses some requests at once and answers the others in time.

Without it, every request that arrives starts. All of them share the event loop, so each takes as long as all together,
and clients give up on responses that were computed for them. Health checks wait like the rest.

`AdmissionQueue` decides. It is the only place where requests wait for long: the event loop reads every socket in each
turn, and what runs in a turn is limited there. Decision 22 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from plaza.core.errors import Unavailable
from plaza.core.http.admission_queue import AdmissionQueue
from plaza.core.http.body_reader import Receive
from plaza.core.http.headers import Cors, Headers
from plaza.core.http.raw_responses import RawResponse, new_request_id
from plaza.core.http.responses import EVENTS
from plaza.core.http.streaming import Send

# Always started at once: a busy process must not be restarted, or lose its traffic, because it is busy.
HEALTH_PATHS = ("/healthz", "/readyz", "/ping", "/metrics")
# A write may wait longer than a read: its client did something that a refusal may lose.
WRITE_FACTOR = 2
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))

# The time of arrival in the scope of a request, by `monotonic`'s clock.
ARRIVED = "plaza.arrived"

_EVENT_STREAM = (b"content-type", EVENTS.encode())


class ServerOverloaded(Unavailable):
    title, code = "The server is overloaded", "overloaded"


def overloaded_response(*, close: bool = False) -> RawResponse:
    return RawResponse(ServerOverloaded("Too many requests are waiting. Try again later."), close=close)


class AdmissionControl:
    """ASGI middleware that lets requests wait in an `AdmissionQueue`, but not health checks.

    An event stream counts as running only until it begins: an open one does nothing for most of the time.
    """

    def __init__(
        self, app: Any, queue: AdmissionQueue, read_seconds: float, root_path: str = "", cors: Cors | None = None
    ) -> None:
        self._app = app
        self._cors = cors
        self._response = overloaded_response()
        self._queue = queue
        self.read_seconds = read_seconds
        self._health = frozenset(f"{root}{path}".encode() for root in ("", root_path) for path in HEALTH_PATHS)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["raw_path"] in self._health:
            await self._app(scope, receive, send)
        elif not await self._queue.enter(scope.get(ARRIVED) or monotonic(), self._wait_seconds(scope["method"])):
            await self._refuse(scope, send)
        else:
            await self._run(scope, receive, send)

    async def _refuse(self, scope: dict[str, Any], send: Send) -> None:
        response, request_id = self._response, new_request_id()
        headers = [*response.headers(request_id), *self.cors_headers(scope)]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body(request_id)})

    def cors_headers(self, scope: dict[str, Any]) -> Headers:
        """The headers with which scripts of other origins can read that they must wait."""
        if self._cors is None:
            return []
        origin = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"), None)
        return self._cors.headers({} if origin is None else {"origin": origin})

    def refuses(self, method: str, raw_path: bytes) -> bool:
        """Whether to refuse a request on arrival, because it would wait too long. If so, call `refuse_later`."""
        return len(self._queue) > 0 and raw_path not in self._health and self._queue.is_full(self._wait_seconds(method))

    def refuse_later(self, respond: Callable[[], None]) -> None:
        """Call `respond` after `REFUSAL_SECONDS`."""
        self._queue.refuse_later(respond)

    def _wait_seconds(self, method: str) -> float:
        return self.read_seconds if method in SAFE_METHODS else self.read_seconds * WRITE_FACTOR

    async def _run(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        has_left = False

        async def send_and_watch(message: dict[str, Any]) -> None:
            nonlocal has_left
            if message["type"] == "http.response.start" and not has_left and _EVENT_STREAM in message["headers"]:
                has_left = True
                self._queue.leave()
            await send(message)

        try:
            await self._app(scope, receive, send_and_watch)
        finally:
            if not has_left:
                self._queue.leave()
