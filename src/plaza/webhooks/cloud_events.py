"""Events as they are sent: CloudEvents in JSON, made from entries of the event streams.

Other services may add entries too, whatever they like. One without a valid type is no event; an odd id is replaced, an
odd subject is cut, and data that is not JSON or too long is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from plaza.core.cloud_events import MAX_SUBJECT_CHARACTERS, to_cloud_event
from plaza.core.events import Event

_TYPE: Final = re.compile(r"[a-z0-9_]{1,50}(\.[a-z0-9_]{1,50}){1,3}")
_ID: Final = re.compile(r"[!-~]{1,200}")  # it becomes a header


class OutgoingEvent(Struct, frozen=True):
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
    if _TYPE.fullmatch(fields.get("type", "")) is None:
        return None
    id = fields.get("id", "")
    subject = fields.get("subject", "")[:MAX_SUBJECT_CHARACTERS]
    valid = {**fields, "id": id if _ID.fullmatch(id) else default_id, "subject": subject}
    event = Event("", entry, valid)
    body = to_cloud_event(event, source).encode()
    return OutgoingEvent(entry, event.id, event.type, event.subject, event.origin == "import", body)
