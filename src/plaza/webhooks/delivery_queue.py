"""The queue of an endpoint in Valkey, and the results of its deliveries. Every operation is one round trip.

All of them can be repeated: an event is queued once, and a result counts only while its event is waiting. So two
workers that believe to be in charge, one of which has stalled, do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.sequences import pairs_to_dict
from plaza.webhooks.cloud_events import OutgoingEvent
from plaza.webhooks.deliveries import read_record
from plaza.webhooks.keys import WEBHOOK, WEBHOOK_STATE
from plaza.webhooks.model import DeliveryRecord, DeliveryState, SendOutcome


class QueuedEvent(Struct, frozen=True):
    """An event that waits for an endpoint. `due_ms` is 0 if it may be sent at once."""

    delivery: str
    event: str
    type: str
    subject: str
    body: bytes
    stream: str
    entry: str
    attempts: int = 0
    first_attempt_at: int = 0
    due_ms: int = 0

    def after_attempt(self, now_ms: int) -> QueuedEvent:
        return replace(self, attempts=self.attempts + 1, first_attempt_at=self.first_attempt_at or now_ms, due_ms=0)

    def due_again(self, due_ms: int) -> QueuedEvent:
        return replace(self, due_ms=due_ms)

    def record(self, outcome: SendOutcome, status: DeliveryState, now_ms: int) -> bytes:
        """Return what is stored about the last attempt."""
        return msgspec.json.encode(
            DeliveryRecord(
                event=self.event,
                type=self.type,
                status=status,
                attempts=self.attempts,
                duration_ms=outcome.duration_ms,
                first_attempt_at=self.first_attempt_at,
                last_attempt_at=now_ms,
                response_code=outcome.code,
                error=outcome.reason,
                stream=self.stream,
                entry=self.entry,
            )
        )


class DeliveryQueue:
    """Reads and writes the queues of endpoints."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._valkey = functions.valkey

    async def add(self, id: str, stream: str, position: str, events: Sequence[OutgoingEvent]) -> tuple[int, int]:
        """Queue events of a stream, read up to `position`. Returns how many were added, and how many dropped."""
        words: list[str | bytes] = []
        for event in events:
            words += [event.entry, event.id, event.type, event.subject, event.body]
        added, dropped = await self._functions.run("webhooks_enqueue", [WEBHOOK(id)], id, stream, position, *words)
        return max(int(added), 0), int(dropped)

    async def waiting(self, id: str, after: str, count: int) -> list[QueuedEvent]:
        """Return events that wait, after a delivery, oldest first."""
        reply = await self._functions.query("webhooks_waiting", [WEBHOOK(id)], id, after, count)
        return [_queued(*row) for row in reply]

    async def failures(self, id: str) -> tuple[int, int, int]:
        """Return an endpoint's failures in a row, when they began, and when it is tried again if it is down."""
        values = await self._valkey.call("HMGET", WEBHOOK_STATE(id), "failures", "failing_since", "next_at")
        count, since, due = (parse_int(value, 0) for value in values)
        return count, since, due

    async def delivered(self, id: str, event: QueuedEvent, outcome: SendOutcome, now_ms: int) -> None:
        """Remove a delivered event from the queue and record it."""
        record = event.record(outcome, "delivered", now_ms)
        await self._functions.run("webhooks_delivered", [WEBHOOK(id)], id, event.delivery, now_ms, record)

    async def failed(self, id: str, event: QueuedEvent, outcome: SendOutcome, now_ms: int, endpoint_due: int) -> None:
        """Record a failed attempt. `endpoint_due` is when the whole endpoint is tried again; 0 if it is not down."""
        record = event.record(outcome, "retrying", now_ms)
        due = (event.due_ms, endpoint_due or "")
        args = (event.delivery, now_ms, record, outcome.reason or "", *due)
        await self._functions.run("webhooks_failed", [WEBHOOK(id)], id, *args)


def _queued(delivery: str, flat: Sequence[str], due: Any, stored: str | None) -> QueuedEvent:
    fields = pairs_to_dict(flat)
    event = QueuedEvent(
        delivery,
        fields.get("event", delivery),
        fields.get("type", ""),
        fields.get("subject", ""),
        fields.get("body", "").encode(),
        fields.get("stream", ""),
        fields.get("entry", ""),
    )
    record = read_record(stored)
    if record is None:
        return event
    due_ms = parse_int(due, 0)
    return replace(event, attempts=record.attempts, first_attempt_at=record.first_attempt_at, due_ms=due_ms)
