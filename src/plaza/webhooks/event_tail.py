"""Reads event streams in order and queues each event for the endpoints that want it.

A consumer group would share the events of a stream between workers and retry a failed one later, so events of one
subject could change places. Here one worker reads, strictly in order, and goes on only when every queue has what it
read. The position is stored after that; what was queued before a crash is recognised by the queue's own position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from plaza.core import metrics
from plaza.core.event_streams import EventStream
from plaza.core.sequences import pairs_to_dict
from plaza.core.valkey import ReplyError, Valkey
from plaza.core.valkey.client import BlockingConnection
from plaza.webhooks.cloud_events import OutgoingEvent, from_entry
from plaza.webhooks.delivery_queue import DeliveryQueue
from plaza.webhooks.directory import EndpointDirectory
from plaza.webhooks.endpoint_reader import Endpoint
from plaza.webhooks.keys import READ_POSITIONS

BATCH: Final = 500
# How long one read blocks. An idle reader costs one command in this time.
BLOCK_SECONDS: Final = 5.0

log = structlog.get_logger("plaza.webhooks")


class EventTail:
    """Follows some streams that are in one slot."""

    def __init__(
        self,
        valkey: Valkey,
        streams: Sequence[EventStream],
        directory: EndpointDirectory,
        queue: DeliveryQueue,
        source: str,
        on_queued: Callable[[str], None],
    ) -> None:
        self._valkey = valkey
        self._names = {stream.key: stream.name for stream in streams}
        self._directory = directory
        self._queue = queue
        self._source = source
        self._on_queued = on_queued
        self._positions: dict[str, str] = {}

    async def run(self) -> None:
        """Queue events as they come, while an endpoint is enabled. Raises `Unavailable` when Valkey is."""
        await self._directory.has_enabled.wait()
        await self._restore_positions()
        async with self._valkey.blocking() as connection:
            while self._directory.has_enabled.is_set():
                await self._read(connection)

    async def _restore_positions(self) -> None:
        """Continue where the last reader stopped, but not before the first enabled endpoint wants events."""
        stored = await self._valkey.call("HMGET", READ_POSITIONS(), *self._names)
        oldest = min((endpoint.since for endpoint in self._directory.enabled), default=0)
        wanted = f"{max(oldest - 1, 0)}-{2**63 - 1}"
        self._positions = {
            key: max(position or "0-0", wanted, key=_order) for key, position in zip(self._names, stored, strict=True)
        }
        await self._report_lost_events()

    async def _report_lost_events(self) -> None:
        """Events can be trimmed while no worker runs for days. They cannot be sent any more."""
        found = await self._valkey.batch([("XINFO", "STREAM", key) for key in self._names], return_errors=True)
        for (key, name), state in zip(self._names.items(), found, strict=True):
            if isinstance(state, dict) and _order(state["max-deleted-entry-id"]) > _order(self._positions[key]):
                log.error("webhooks_fell_behind", stream=key, position=self._positions[key])
                metrics.EVENTS_BEHIND.labels(name, "webhooks").inc()

    async def _read(self, connection: BlockingConnection) -> None:
        block = ("BLOCK", round(BLOCK_SECONDS * 1000))
        reply = await connection.call(
            "XREAD", "COUNT", BATCH, *block, "STREAMS", *self._positions, *self._positions.values()
        )
        if not reply:
            return
        # After the events were read: an endpoint that existed before an event does get it.
        await self._directory.refresh()
        for key, entries in reply.items():
            await self._queue_entries(key, entries)

    async def _queue_entries(self, key: str, entries: Sequence[Any]) -> None:
        """Queue the events of one stream for all endpoints, then store the position."""
        position: str = entries[-1][0]
        name = self._names[key]
        found = [from_entry(f"{name}-{id}", id, pairs_to_dict(fields), self._source) for id, fields in entries]
        events = [event for event in found if event is not None]
        adding = [self._add(endpoint, key, position, events) for endpoint in self._directory.enabled]
        await asyncio.gather(*adding)
        await self._valkey.call("HSET", READ_POSITIONS(), key, position)
        self._positions[key] = position

    async def _add(self, endpoint: Endpoint, key: str, position: str, events: Sequence[OutgoingEvent]) -> None:
        wanted = [event for event in events if endpoint.wants(event)]
        if not wanted:
            return
        try:
            added, dropped = await self._queue.add(endpoint.id, key, position, wanted)
        except ReplyError as error:  # a damaged key of one endpoint must not stop the others
            log.error("webhook_queue_damaged", webhook=endpoint.id, error=str(error))
            return
        if dropped:
            metrics.WEBHOOK_DROPPED.inc(dropped)
            log.warning("webhook_queue_full", webhook=endpoint.id, dropped=dropped)
        if added:
            self._on_queued(endpoint.id)


def _order(entry: str) -> tuple[int, int]:
    ms, _, number = entry.partition("-")
    return int(ms), int(number or 0)
