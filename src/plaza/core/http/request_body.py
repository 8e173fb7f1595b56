"""Reading a body no further than its route allows, whether it says its length or comes in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from plaza.core.errors import BadRequest, TooLarge
from plaza.core.http.problem_details import TooSlow

Receive = Callable[[], Awaitable[dict[str, Any]]]

# A phone on a bad line sends a mebibyte in this time; who needs longer holds a connection for nothing.
BODY_SECONDS = 30.0


# A connection that is closed while its client still sends is reset, and the answer may be lost. So after a refusal the
# rest is read and thrown away, for so long in all, and for so long without a byte.
LINGER_SECONDS = 5.0
SILENT_SECONDS = 1.0


class ClientGone(Exception):
    """The client hung up: there is nobody to answer."""


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """The whole body. Refuses as soon as it is known to be larger than `limit`, without waiting for the rest."""
    length = headers.get("content-length")
    if length is None:
        if "transfer-encoding" not in headers:
            return b""  # by RFC 9112 there is no body
    elif not (length.isascii() and length.isdigit()):
        raise BadRequest("Content-Length is not a number.")
    elif int(length) > limit:
        raise _too_large(limit)
    with _Patience():
        return await _read(receive, limit)


class _Patience:
    """`asyncio.timeout`, for a wait that nearly always is none: a quarter of its cost."""

    __slots__ = ("_expired", "_task", "_timer")

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._expired = task, False
        self._timer = asyncio.get_running_loop().call_later(BODY_SECONDS, self._expire)

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if self._expired and kind is asyncio.CancelledError and self._task.uncancel() == 0:
            raise TooSlow(f"The body must arrive within {BODY_SECONDS:.0f} seconds.") from error


async def _read(receive: Receive, limit: int) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body"):
            return piece if len(pieces) == 1 else b"".join(pieces)


async def throw_away(receive: Receive) -> None:
    """Read on for a moment, so that a client which writes first and reads then gets to read."""
    now = asyncio.get_running_loop().time
    until = now() + LINGER_SECONDS
    with suppress(TimeoutError):
        # The end is looked at each time: a timeout around `wait_for` is lost if a piece comes in the same moment.
        while (left := until - now()) > 0:
            async with asyncio.timeout(min(left, SILENT_SECONDS)):
                message = await receive()
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                return


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit} bytes.", limit=limit)
