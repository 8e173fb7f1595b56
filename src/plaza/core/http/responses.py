"""What a handler gives back, and how it becomes bytes.

Most handlers return a Struct and the route says the rest. `Response` is for the others: another status, a header, bytes
of another media type, a stream. All JSON leaves through the one encoder here, so a time or a decimal looks the same
everywhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

JSON = "application/json"
EVENTS = "text/event-stream"

encode = msgspec.json.Encoder().encode


class Response(Generic[T]):
    """An answer that differs from what its route declares. `status` and `media_type` default to the route's.

    `body` is a value to encode, `bytes` or `str` to send as they are, `None` for nothing, or an async iterator whose
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


class Event(msgspec.Struct, Generic[T], frozen=True):
    """One server-sent event. `data` is encoded as JSON; its type is what the OpenAPI document shows."""

    data: T
    event: str | None = None
    id: str | None = None
    retry_ms: int | None = None


def encode_event(item: Any) -> bytes:
    """An item of an event stream; what is no `Event` is the data of one. JSON has no raw line breaks to escape."""
    if not isinstance(item, Event):
        return b"data: " + encode(item) + b"\n\n"
    lines = []
    if item.event is not None:
        lines.append(f"event: {_one_line(item.event)}\n".encode())
    if item.id is not None:
        lines.append(f"id: {_one_line(item.id)}\n".encode())
    if item.retry_ms is not None:
        lines.append(f"retry: {item.retry_ms}\n".encode())
    return b"".join([*lines, b"data: ", encode(item.data), b"\n\n"])


def _one_line(text: str) -> str:
    # A line break would end the field and let its rest be read as another one.
    return text.replace("\r", " ").replace("\n", " ").replace("\0", " ")


def as_bytes(body: Any) -> bytes:
    """A whole body as it goes out."""
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return encode(body)
