"""Reads a request body up to the size and within the time that its route allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

from plaza.core.errors import BadRequest, TooLarge
from plaza.core.http.exchange import ClientDisconnected, Exchange
from plaza.core.http.problem_details import RequestTimedOut

# A phone with a bad connection sends a mebibyte in this time.
BODY_TIMEOUT_SECONDS = 30.0
# A body that is read as it arrives gets this much more time: the same phone, with a picture.
SLOW_BYTES_PER_SECOND = 65_536

# If a connection is closed while its client still sends, the client gets a reset and may lose the response. So after a
# refusal the rest is read and discarded: this long in total, and this long without a byte.
DISCARD_SECONDS = 5.0
DISCARD_IDLE_SECONDS = 1.0


async def read_body(exchange: Exchange, limit: int) -> bytes:
    """Read the complete body. Raises `TooLarge` as soon as it is known to be larger than `limit` bytes."""
    if not _has_body(exchange.headers, limit):
        return b""
    body = exchange.take_body()
    if body is None:
        with _BodyTimeout(BODY_TIMEOUT_SECONDS):
            return await _read(exchange, limit)
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def body_chunks(exchange: Exchange, limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. It may take as long as a slow connection needs for `limit` bytes."""
    if not _has_body(exchange.headers, limit):
        return
    size, more = 0, True
    with _BodyTimeout(BODY_TIMEOUT_SECONDS + limit / SLOW_BYTES_PER_SECOND):
        while more:
            chunk, more = await exchange.next_chunk()
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            yield chunk


def _has_body(headers: Mapping[str, str], limit: int) -> bool:
    """Whether a request has a body (RFC 9112, 6.3). Raises `TooLarge` if its length is known to exceed the limit."""
    length = headers.get("content-length")
    if length is None:
        return "transfer-encoding" in headers
    if not (length.isascii() and length.isdigit()):
        raise BadRequest("Content-Length is not a number.")
    if int(length) > limit:
        raise _too_large(limit)
    return True


class _BodyTimeout:
    """As `asyncio.timeout`, at a quarter of its cost."""

    __slots__ = ("_expired", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._expired = task, False
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._expired and kind is asyncio.CancelledError and self._task.uncancel() == 0:
            raise RequestTimedOut(f"The body must arrive within {self._seconds:.0f} seconds.") from error


async def _read(exchange: Exchange, limit: int) -> bytes:
    chunks, size = [], 0
    while True:
        chunk, more = await exchange.next_chunk()
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not more:
            return chunk if len(chunks) == 1 else b"".join(chunks)


async def discard_body(exchange: Exchange) -> None:
    """Read and discard the rest of a body for a while. Clients that write before they read then get the response."""
    now = asyncio.get_running_loop().time
    until = now() + DISCARD_SECONDS
    with suppress(TimeoutError, ClientDisconnected):
        # One timeout per chunk, not one around the loop: that one is lost if a chunk arrives at the same moment.
        while (left := until - now()) > 0:
            async with asyncio.timeout(min(left, DISCARD_IDLE_SECONDS)):
                _, more = await exchange.next_chunk()
            if not more:
                return


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit} bytes.", limit=limit)
