"""Events as they are sent: CloudEvents in JSON, made from entries of the event streams.

Other services may add entries too, whatever they like. One without a valid type is no event; an odd id is replaced, an
odd subject is cut, and data that is not JSON or too long is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from plaza.core.number_parsing import parse_time_ms

# Events have ids and usernames only. This is a hundred times what Plaza writes.
MAX_DATA_CHARACTERS: Final = 65_536
MAX_SUBJECT_CHARACTERS: Final = 300

_TYPE: Final = re.compile(r"[a-z0-9_]{1,50}(\.[a-z0-9_]{1,50}){1,3}")
_ID: Final = re.compile(r"[!-~]{1,200}")  # it becomes a header

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
    if _TYPE.fullmatch(event_type) is None:
        return None
    id = fields.get("id", "")
    if _ID.fullmatch(id) is None:
        id = default_id
    time = datetime.fromtimestamp(parse_time_ms(fields.get("time"), int(entry.partition("-")[0])) / 1000, UTC)
    subject = fields.get("subject", "")[:MAX_SUBJECT_CHARACTERS]
    event = CloudEvent(id, source, event_type, subject, time, _json(fields.get("data")))
    return OutgoingEvent(entry, id, event_type, subject, fields.get("origin") == "import", event.encode())


def _json(text: str | None) -> Any:
    if text is None or len(text) > MAX_DATA_CHARACTERS:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
