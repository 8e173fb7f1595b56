"""The deliveries of an endpoint, for operators: list, retry, test, and remove old ones."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from plaza.core import metrics
from plaza.core.clock import Clock
from plaza.core.cloud_events import CloudEvent
from plaza.core.functions import Functions
from plaza.core.number_parsing import parse_int
from plaza.core.paging import Page, ids_in_sorted_set, page_by_position
from plaza.core.sequences import pairs_to_dict
from plaza.core.tracing import traced
from plaza.webhooks.cloud_events import OutgoingEvent, from_entry
from plaza.webhooks.endpoint_reader import Endpoint, EndpointReader
from plaza.webhooks.http_client import WebhookClient
from plaza.webhooks.keys import WEBHOOK, WEBHOOK_ATTEMPTS, WEBHOOK_DELIVERIES, WEBHOOK_FAILING
from plaza.webhooks.model import (
    KEPT_MS,
    TEST_EVENT,
    Delivery,
    DeliveryPage,
    DeliveryRecord,
    EndpointResponse,
    EventTrimmed,
    NoDelivery,
    NoWebhook,
    SendOutcome,
)

if TYPE_CHECKING:
    from plaza.webhooks.endpoint_connections import EndpointConnections

# Records and events that one call removes, so that Valkey is blocked for a millisecond.
EXPIRE_STEP: Final = 500

UNREADABLE: Final = "The secret cannot be decrypted. Rotate it."

_DECODER: Final = msgspec.json.Decoder(DeliveryRecord)


async def send_signed(
    connections: EndpointConnections, endpoint: Endpoint, message_id: str, now_ms: int, body: bytes
) -> SendOutcome:
    """Send one signed message to an endpoint and return the result."""
    if endpoint.key is None:
        return SendOutcome(None, UNREADABLE, 0)
    headers = endpoint.headers(message_id, now_ms, body)
    with traced("webhook delivery", "client", **{"plaza.webhook": endpoint.id}) as operation:
        if operation.traceparent:
            headers["traceparent"] = operation.traceparent
        outcome = await connections.post(endpoint.url, body, headers)
        if operation.traceparent:
            operation.attributes["http.response.status_code"] = outcome.code or 0
            operation.error = "" if outcome.is_delivered else str(outcome.code or "no_response")
        return outcome


class Deliveries:
    """Lists and repeats deliveries, and sends test events."""

    def __init__(
        self, functions: Functions, reader: EndpointReader, client: WebhookClient, clock: Clock, source: str
    ) -> None:
        self._functions = functions
        self._valkey = functions.valkey
        self._reader = reader
        self._client = client
        self._clock = clock
        self._source = source

    async def page(self, id: str, page: Page) -> DeliveryPage:
        """List the deliveries of an endpoint, latest attempt first. Two round trips."""
        await self._require(id)

        async def load(ids: Sequence[str]) -> list[Delivery | None]:
            return await self._get_many(id, ids)

        key = WEBHOOK_ATTEMPTS(id)
        paged = await page_by_position(key, page, ids_in_sorted_set(self._functions, key), load)
        return DeliveryPage(paged.items, paged.pagination)

    async def test(self, id: str) -> EndpointResponse:
        """Send a test event now, also to a disabled endpoint, and return the response. It is not retried."""
        endpoint = await self._require(id)
        now, event = self._clock.now_ms(), f"test_{secrets.token_hex(12)}"
        connections = self._client.connections()
        try:
            outcome = await send_signed(connections, endpoint, event, now, self._test_body(id, event, now))
        finally:
            await connections.close()
        record = DeliveryRecord(
            event=event,
            type=TEST_EVENT,
            status="delivered" if outcome.is_delivered else "failed",
            attempts=1,
            response_code=outcome.code,
            error=outcome.reason,
            duration_ms=outcome.duration_ms,
            first_attempt_at=now,
            last_attempt_at=now,
        )
        delivery = f"{now}-{secrets.randbelow(10**9)}"
        await self._functions.run("webhooks_tested", [WEBHOOK(id)], id, delivery, now, msgspec.json.encode(record))
        return EndpointResponse(outcome.is_delivered, outcome.code, outcome.reason, outcome.duration_ms)

    async def retry(self, id: str, delivery: str) -> str:
        """Send an event again now. Returns the id of its delivery, which is a new one if it had ended.

        At most three round trips. Raises `EventTrimmed` if the event of an ended delivery is no longer in its stream.
        """
        if await self._functions.run("webhooks_retry", [WEBHOOK(id)], id, delivery):
            return delivery
        record = read_record(await self._valkey.call("HGET", WEBHOOK_DELIVERIES(id), delivery))
        if record is None:
            raise NoDelivery
        event = await self._event_of(record)
        if event is None:
            raise EventTrimmed("The event is no longer stored, so it cannot be sent again.")
        args = (record.stream, event.entry, event.id, event.type, event.subject, event.body)
        return str(await self._functions.run("webhooks_resend", [WEBHOOK(id)], id, *args))

    async def expire(self) -> int:
        """Remove records and waiting events that are older than a week, in bounded steps. Returns how many."""
        now, removed = self._clock.now_ms(), 0
        for id in await self._reader.revisions():
            while True:
                args = (id, now, now - KEPT_MS, EXPIRE_STEP)
                records, events = await self._functions.run("webhooks_expire", [WEBHOOK(id)], *args)
                metrics.WEBHOOK_DROPPED.inc(events)
                removed += records + events
                if max(records, events) < EXPIRE_STEP:
                    break
        return removed

    async def _event_of(self, record: DeliveryRecord) -> OutgoingEvent | None:
        if not record.stream:
            return None  # a test
        found = await self._valkey.call("XRANGE", record.stream, record.entry, record.entry)
        if not found:
            return None
        return from_entry(record.event, record.entry, pairs_to_dict(found[0][1]), self._source)

    def _test_body(self, id: str, event: str, now_ms: int) -> bytes:
        time = datetime.fromtimestamp(now_ms / 1000, UTC)
        return CloudEvent(event, self._source, TEST_EVENT, f"webhook/{id}", time, {}).encode()

    async def _require(self, id: str) -> Endpoint:
        endpoint = await self._reader.get(id)
        if endpoint is None:
            raise NoWebhook
        return endpoint

    async def _get_many(self, id: str, ids: Sequence[str]) -> list[Delivery | None]:
        if not ids:
            return []
        records, due = await self._valkey.batch(
            [("HMGET", WEBHOOK_DELIVERIES(id), *ids), ("ZMSCORE", WEBHOOK_FAILING(id), *ids)]
        )
        return [_delivery(*found) for found in zip(ids, records, due, strict=True)]


def read_record(stored: str | None) -> DeliveryRecord | None:
    """Return the stored record of a delivery; None if there is none or it cannot be read."""
    try:
        return None if stored is None else _DECODER.decode(stored)
    except msgspec.DecodeError:
        return None


def _delivery(id: str, stored: str | None, due: float | None) -> Delivery | None:
    record = read_record(stored)
    if record is None:
        return None
    shown = {name: getattr(record, name) for name in Delivery.__struct_fields__ if hasattr(record, name)}
    return Delivery(id=id, **shown, next_attempt_at=None if due is None else parse_int(due, None))
