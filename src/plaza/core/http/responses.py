"""Responses of handlers, and their encoding.

Most handlers return a Struct, and the route declares the rest. `Response` is for the others: another status, a header,
another media type, a stream. All JSON is written by the one encoder here, so that a time or a decimal looks the same
everywhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

JSON = "application/json"
ZIP = "application/zip"
EVENTS = "text/event-stream"

encode = msgspec.json.Encoder().encode


class Response(Generic[T]):
    """A response that differs from what its route declares. `status` and `media_type` default to the route's.

    `body` is a value to encode, `bytes` or `str` to send unchanged, `None` for no body, or an async iterator whose
    items are sent as they come. `headers` replace the standard ones of the same name, except `set-cookie`.
    """

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self,
        body: T | bytes | str | AsyncIterator[Any] | None = None,
        *,
        status: int | None = None,
        headers: Iterable[tuple[str, str]] = (),
        media_type: str | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = tuple(headers)
        self.media_type = media_type


class ServerSentEvent(msgspec.Struct, Generic[T], frozen=True):
    """One server-sent event. `data` is encoded as JSON; the OpenAPI document shows its type."""

    data: T
    event: str | None = None
    id: str | None = None
    retry_ms: int | None = None


def encode_server_sent_event(item: Any) -> bytes:
    """Encode an item of an event stream. Bytes are encoded events; another item is the data of one."""
    if isinstance(item, bytes):
        return item
    if not isinstance(item, ServerSentEvent):
        return b"data: " + encode(item) + b"\n\n"
    lines = []
    if item.event is not None:
        lines.append(f"event: {_one_line(item.event)}\n".encode())
    if item.id is not None:
        lines.append(f"id: {_one_line(item.id)}\n".encode())
    if item.retry_ms is not None:
        lines.append(f"retry: {item.retry_ms}\n".encode())
    return b"".join([*lines, b"data: ", encode(item.data), b"\n\n"])  # JSON contains no raw line break


def _one_line(text: str) -> str:
    # A line break would end the field, and the rest would be read as another field.
    return text.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def as_bytes(body: Any) -> bytes:
    """Encode a complete body."""
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return encode(body)
