"""Events as they are sent: CloudEvents in JSON, made from entries of the event streams.

Other services may add entries too. One without a type is no event; data that is not JSON is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from plaza.core.number_parsing import parse_time_ms

_encode = msgspec.json.Encoder().encode


class CloudEvent(msgspec.Struct, frozen=True):
    """The JSON format of CloudEvents 1.0."""

    id: str
    source: str
    type: str
    subject: str
    time: datetime
    data: Any = None
    specversion: str = "1.0"
    datacontenttype: str = "application/json"

    def encode(self) -> bytes:
        return _encode(self)


@dataclass(frozen=True, slots=True)
class OutgoingEvent:
    """An event of a stream, ready to be sent."""

    entry: str  # its id in the stream
    id: str
    type: str
    subject: str
    is_import: bool
    body: bytes

    @property
    def added_ms(self) -> int:
        """When it was added to the stream, by the clock of the server."""
        return int(self.entry.partition("-")[0])


def from_entry(default_id: str, entry: str, fields: Mapping[str, str], source: str) -> OutgoingEvent | None:
    """Return the event of a stream's entry; None if it is none. `default_id` is for an event without an id."""
    event_type = fields.get("type", "")
    if not event_type:
        return None
    id = fields.get("id") or default_id
    time = datetime.fromtimestamp(parse_time_ms(fields.get("time"), int(entry.partition("-")[0])) / 1000, UTC)
    subject = fields.get("subject", "")
    event = CloudEvent(id, source, event_type, subject, time, _json(fields.get("data")))
    return OutgoingEvent(entry, id, event_type, subject, fields.get("origin") == "import", event.encode())


def _json(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
