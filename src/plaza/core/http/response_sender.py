"""Sends a response, with the headers that every response has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any

import structlog

from plaza.core.errors import PlazaError
from plaza.core.http.body_reader import discard_body
from plaza.core.http.bound_route import EncodedResponse
from plaza.core.http.event_stream_sender import EventStreamSender
from plaza.core.http.exchange import EVENT_STREAM, ClientDisconnected
from plaza.core.http.headers import Cors
from plaza.core.http.request import Request
from plaza.core.http.streaming import close, send_chunks
from plaza.core.wrong_type import ExplainError

_ONE_TRIP = b'valkey;desc="1 round trip";dur='
_TRIPS = b'valkey;desc="%d round trips";dur='

# A year: browsers then use https only.
_HSTS = (b"strict-transport-security", b"max-age=31536000")

log = structlog.get_logger("plaza.http")


class ResponseSender:
    """Sends responses."""

    def __init__(self, cors: Cors | None, explain_error: ExplainError, draining: asyncio.Event) -> None:
        self._cors = cors
        self._explain_error = explain_error
        self._draining = draining
        self._events = EventStreamSender(draining)

    async def send(self, request: Request, response: EncodedResponse, started: float) -> None:
        """Send a response. `started` is the request's start on `perf_counter`'s clock, for `Server-Timing`."""
        status, headers, body, exchange = response.status, response.headers, response.body, request.exchange
        more, closes = self._headers(request, response, started), self._draining.is_set()
        if isinstance(body, bytes) and not request.is_body_refused:
            await exchange.respond(status, headers, more, body, closes=closes)
            return
        await exchange.start(status, headers, more, closes=closes)
        if isinstance(body, bytes):
            await exchange.write(body)
            await discard_body(exchange)
            await exchange.finish()
        elif request.method == "HEAD":
            await exchange.finish()
            await close(body)
        else:
            await self._stream(request, response, body)

    def _headers(self, request: Request, response: EncodedResponse, started: float) -> list[tuple[bytes, bytes]]:
        usage, body = request.usage, response.body
        trips = _ONE_TRIP if usage.trips == 1 else _TRIPS % usage.trips
        total = perf_counter() - started
        headers = [
            (b"x-request-id", request.request_id.encode()),
            (b"server-timing", trips + b"%.3f, total;dur=%.3f" % (usage.seconds * 1000, total * 1000)),
        ]
        if isinstance(body, bytes) and response.status not in (204, 304):
            headers.append((b"content-length", b"%d" % len(body)))
        if request.limits is not None:
            headers += [(name.encode(), value.encode()) for name, value in request.limits.headers()]
        if request.secure:
            headers.append(_HSTS)
        if self._cors is not None:
            headers += self._cors.headers(request.headers)
        return headers

    async def _stream(self, request: Request, response: EncodedResponse, items: AsyncIterator[Any]) -> None:
        try:
            if EVENT_STREAM in response.headers:
                request.streams = True
                await self._events.send(items, request.exchange)
            else:
                await send_chunks(items, request.exchange)
        except (ClientDisconnected, asyncio.CancelledError):
            raise
        except Exception as error:
            # The status is already sent. The connection breaks, so that the client does not take a part for the whole.
            explained = await self._explain_error(error)
            log.error(
                "stream_failed",
                request_id=request.request_id,
                route=request.template,
                exc_info=None if isinstance(explained, PlazaError) else error,
                error=str(explained),
            )
        finally:
            await close(items)
