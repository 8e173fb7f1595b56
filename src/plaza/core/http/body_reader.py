"""Reads a request body up to the size and within the time that its route allows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from plaza.core.errors import BadRequest, TooLarge
from plaza.core.http.problem_details import RequestTimedOut

Receive = Callable[[], Awaitable[dict[str, Any]]]

# A phone with a bad connection sends a mebibyte in this time.
BODY_TIMEOUT_SECONDS = 30.0

# If a connection is closed while its client still sends, the client gets a reset and may lose the response. So after a
# refusal the rest is read and discarded: this long in total, and this long without a byte.
DISCARD_SECONDS = 5.0
DISCARD_IDLE_SECONDS = 1.0


class ClientDisconnected(Exception):
    """The client closed the connection. No response can be sent."""


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """Read the complete body. Raises `TooLarge` as soon as it is known to be larger than `limit` bytes."""
    length = headers.get("content-length")
    if length is None:
        if "transfer-encoding" not in headers:
            return b""  # no body, by RFC 9112
    elif not (length.isascii() and length.isdigit()):
        raise BadRequest("Content-Length is not a number.")
    elif int(length) > limit:
        raise _too_large(limit)
    with _BodyTimeout():
        return await _read(receive, limit)


class _BodyTimeout:
    """As `asyncio.timeout`, at a quarter of its cost: nearly every body is already there and needs no wait."""

    __slots__ = ("_expired", "_task", "_timer")

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._expired = task, False
        self._timer = asyncio.get_running_loop().call_later(BODY_TIMEOUT_SECONDS, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._expired and kind is asyncio.CancelledError and self._task.uncancel() == 0:
            raise RequestTimedOut(f"The body must arrive within {BODY_TIMEOUT_SECONDS:.0f} seconds.") from error


async def _read(receive: Receive, limit: int) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunk if len(chunks) == 1 else b"".join(chunks)


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
