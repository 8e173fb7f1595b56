"""Compares the events that operations emit with the expected ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from plaza.app import DOMAINS, Plaza
from plaza.core.event_streams import all_streams
from plaza.core.events import Event
from plaza.core.sql_events import SqlEventRelay

# Every text that the tests write contains this word. No event may.
PRIVATE = "unspeakable"

TYPES = {event_type.type: event_type for domain in DOMAINS for event_type in domain.events}


@dataclass
class EventRecorder:
    """Reads all streams of events with a plain client."""

    plaza: Plaza
    redis_client: Any
    seen: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)

    async def new_events(self) -> list[Event]:
        """Return the events since the last call, and check the form of each."""
        await self.plaza.core.functions.outbox.drain()
        await SqlEventRelay(self.plaza.core.functions, self.plaza.core.sql).close()  # relays what is committed
        events = [
            Event(domain.name, entry_id, fields)
            for domain in DOMAINS
            if domain.events
            for stream in all_streams(domain.name)
            for entry_id, fields in await self.redis_client.xrange(stream.key)
        ]
        assert len({event.id for event in events}) == len(events)
        new = [event for event in events if event.id not in self.seen]
        self.seen |= {event.id for event in new}
        for event in new:
            self._check(event)
        return new

    def _check(self, event: Event) -> None:
        declared = TYPES[event.type]
        decoded = msgspec.json.decode(event.fields["data"], type=declared)
        assert str(getattr(decoded, declared.subject)) == event.subject
        assert event.fields.keys() <= {"id", "type", "subject", "time", "data", "origin"}
        assert PRIVATE not in str(event.fields)
        self.types.add(event.type)

    async def expect(self, *expected: tuple[str, dict[str, Any]], origin: str = "") -> None:
        """Check that exactly these events were emitted since the last call, in any order."""
        found = [(event.type, sorted(event.data.items()), event.origin) for event in await self.new_events()]
        wanted = [(kind, sorted(data.items()), origin) for kind, data in expected]
        assert sorted(found, key=str) == sorted(wanted, key=str), f"{found} != {wanted}"
