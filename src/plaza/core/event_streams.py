"""Where the events of a domain are: one stream on one server, sixteen on a cluster.

On a cluster one stream would put all events on one node. Its shards are spread over the nodes, and the events of one
owner (a post, a user) are all in one shard, so their order holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec import Struct

from plaza.core import keys as core
from plaza.core.keyspace import Key, Layout

SHARDS = 16


class EventStream(Struct, frozen=True):
    """One stream of events, in the layout of this process."""

    name: str  # the domain's
    shard: int | None = None  # None on one server

    @property
    def key(self) -> str:
        return core.EVENTS(self.name) if self.shard is None else core.EVENTS_SHARD(self.shard, self.name)

    @property
    def dead_key(self) -> str:
        return core.EVENTS_DEAD(self.name) if self.shard is None else core.EVENTS_SHARD_DEAD(self.shard, self.name)

    @property
    def behind_key(self) -> str:
        if self.shard is None:
            return core.EVENTS_BEHIND(self.name)
        return core.EVENTS_SHARD_BEHIND(self.shard, self.name)

    @property
    def relayed_key(self) -> str:
        if self.shard is None:
            return core.EVENTS_RELAYED(self.name)
        return core.EVENTS_SHARD_RELAYED(self.shard, self.name)


def all_streams(name: str) -> list[EventStream]:
    """Return every stream with events of a domain."""
    if Key.layout is Layout.PLAIN:
        return [EventStream(name)]
    return [EventStream(name, shard) for shard in range(SHARDS)]


def streams_by_slot(names: Iterable[str]) -> list[list[EventStream]]:
    """Return every stream with events of some domains. Those of one list are in one slot: one command reads them."""
    return [list(streams) for streams in zip(*(all_streams(name) for name in names), strict=True)]


def stream_of(name: str, owner: str) -> EventStream:
    """Return the stream with the events of one owner. `emission.lua` chooses it in the same way."""
    if Key.layout is Layout.PLAIN:
        return EventStream(name)
    return EventStream(name, hashlib.sha1(owner.encode(), usedforsecurity=False).digest()[0] % SHARDS)
