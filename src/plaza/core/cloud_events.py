"""Events as other programs get them: CloudEvents 1.0 in JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from plaza.core.events import Event
from plaza.core.number_parsing import parse_time_ms

# Events have ids and usernames only. This is a hundred times what Plaza writes.
MAX_DATA_CHARACTERS = 65_536
MAX_SUBJECT_CHARACTERS = 300

_encode = msgspec.json.Encoder().encode


Origin = Annotated[str, Meta(description="`import` or `rename`, if it is not what a user did just now.")]


class CloudEvent(msgspec.Struct, frozen=True):
    """The JSON format of CloudEvents 1.0."""

    id: Annotated[str, Meta(description="No other event has it. An event that is sent twice has it both times.")]
    source: Annotated[str, Meta(description="The address of this Plaza.")]
    type: Annotated[str, Meta(description="Such as `post.liked`.")]
    subject: Annotated[str, Meta(description="What the event is about. The events of one subject are in order.")]
    time: Annotated[datetime, Meta(description="When it happened.")]
    data: Annotated[Any, Meta(description="The fields of the type.")] = None
    specversion: str = "1.0"
    datacontenttype: str = "application/json"
    origin: Origin | UnsetType = UNSET

    def encode(self) -> bytes:
        return _encode(self)


def to_cloud_event(event: Event, source: str) -> CloudEvent:
    """Return an event as a CloudEvent. Other programs may write to streams too: odd values are cut or left out."""
    added_ms = int(event.entry_id.partition("-")[0])
    time = datetime.fromtimestamp(parse_time_ms(event.fields.get("time"), added_ms) / 1000, UTC)
    subject, data = event.subject[:MAX_SUBJECT_CHARACTERS], _decode(event.fields.get("data"))
    return CloudEvent(event.id, source, event.type, subject, time, data, origin=event.origin or UNSET)


def _decode(text: str | None) -> Any:
    if text is None or len(text) > MAX_DATA_CHARACTERS:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
