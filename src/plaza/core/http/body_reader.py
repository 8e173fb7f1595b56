"""Reads a request body up to the size and within the time that its route allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from plaza.core.errors import BadRequest, TooLarge
from plaza.core.http.problem_details import RequestTimedOut

Receive = Callable[[], Awaitable[dict[str, Any]]]

# A phone with a bad connection sends a mebibyte in this time.
BODY_TIMEOUT_SECONDS = 30.0
# A body that is read as it arrives gets this much more time: the same phone, with a picture.
SLOW_BYTES_PER_SECOND = 65_536

# If a connection is closed while its client still sends, the client gets a reset and may lose the response. So after a
# refusal the rest is read and discarded: this long in total, and this long without a byte.
DISCARD_SECONDS = 5.0
DISCARD_IDLE_SECONDS = 1.0


class ClientDisconnected(Exception):
    """The client closed the connection. No response can be sent."""


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """Read the complete body. Raises `TooLarge` as soon as it is known to be larger than `limit` bytes."""
    if not _has_body(headers, limit):
        return b""
    with _BodyTimeout(BODY_TIMEOUT_SECONDS):
        return await _read(receive, limit)


async def body_chunks(headers: Mapping[str, str], receive: Receive, limit: int) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. It may take as long as a slow connection needs for `limit` bytes."""
    if not _has_body(headers, limit):
        return
    size, more = 0, True
    with _BodyTimeout(BODY_TIMEOUT_SECONDS + limit / SLOW_BYTES_PER_SECOND):
        while more:
            chunk, more = await _receive_chunk(receive)
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
    """As `asyncio.timeout`, at a quarter of its cost: nearly every body is already there and needs no wait."""

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


async def _read(receive: Receive, limit: int) -> bytes:
    chunks, size = [], 0
    while True:
        chunk, more = await _receive_chunk(receive)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not more:
            return chunk if len(chunks) == 1 else b"".join(chunks)


async def _receive_chunk(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of the body, and whether there is more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), bool(message.get("more_body"))


async def discard_body(receive: Receive) -> None:
    """Read and discard the rest of a body for a while. Clients that write before they read then get the response."""
    now = asyncio.get_running_loop().time
    until = now() + DISCARD_SECONDS
    with suppress(TimeoutError):
        # One timeout per chunk, not one around the loop: that one is lost if a chunk arrives at the same moment.
        while (left := until - now()) > 0:
            async with asyncio.timeout(min(left, DISCARD_IDLE_SECONDS)):
                message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit} bytes.", limit=limit)
