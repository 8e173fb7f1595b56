"""Reads streams of events as another service would, with a plain client."""

from __future__ import annotations

from typing import Any

from plaza.core.event_streams import all_streams
from plaza.core.events import Event


async def read_events(redis_client: Any, name: str) -> list[Event]:
    """Return all events of a domain: in order on one server, shard by shard on a cluster."""
    return [
        Event(name, entry_id, fields)
        for stream in all_streams(name)
        for entry_id, fields in await redis_client.xrange(stream.key)
    ]
