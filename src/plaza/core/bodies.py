"""Reading a body no further than its route allows, whether it says its length or comes in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from plaza.core.errors import BadRequest, TooLarge
from plaza.core.problems import TooSlow

Receive = Callable[[], Awaitable[dict[str, Any]]]

# A phone on a bad line sends a mebibyte in this time; who needs longer holds a connection for nothing.
BODY_SECONDS = 30.0


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
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(receive, limit)
    except TimeoutError as error:
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


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body is larger than {limit} bytes.", limit=limit)
