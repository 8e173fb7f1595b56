"""Delivers webhooks: one worker at a time reads the events and sends them, so that their order holds.

The others stand by. When the worker in charge stops, another takes over at once; when it dies, after its lease has
expired. Everything that was not delivered is in the queues, and is sent then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from plaza.core.clock import Clock
from plaza.core.errors import Unavailable
from plaza.core.event_streams import streams_by_slot
from plaza.core.leases import LeaseHeld, LeaseLost, Leases
from plaza.core.valkey import Valkey
from plaza.webhooks.delivery_queue import DeliveryQueue
from plaza.webhooks.directory import EndpointDirectory
from plaza.webhooks.endpoint_reader import Endpoint, EndpointReader
from plaza.webhooks.event_tail import EventTail
from plaza.webhooks.http_client import WebhookClient
from plaza.webhooks.sender import Disable, EndpointSender

LEASE: Final = "webhooks"
# How often a worker that stands by asks whether it is needed.
STANDBY_SECONDS: Final = 2.0
# The pause between tries while Valkey is not available.
PAUSE_SECONDS: Final = 0.5

log = structlog.get_logger("plaza.webhooks")


class WebhookDispatcher:
    """Runs the deliveries of all endpoints, while this worker has the lease."""

    def __init__(
        self,
        valkey: Valkey,
        leases: Leases,
        reader: EndpointReader,
        queue: DeliveryQueue,
        client: WebhookClient,
        clock: Clock,
        disable: Disable,
        domains: Sequence[str],
        source: str,
    ) -> None:
        self.stopping = False
        self._valkey = valkey
        self._leases = leases
        self._reader = reader
        self._queue = queue
        self._client = client
        self._clock = clock
        self._disable = disable
        self._domains = domains
        self._source = source
        self._stopped = asyncio.Event()
        self._senders: dict[str, EndpointSender] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether requests are in progress, which a stop should not interrupt."""
        return any(sender.in_progress for sender in self._senders.values())

    def stop(self) -> None:
        """Start no further request. `run` returns when those in progress have ended."""
        self.stopping = True
        self._stopped.set()
        for sender in self._senders.values():
            sender.stop()

    async def run(self) -> None:
        """Deliver webhooks while no other worker does, until stopped."""
        while not self.stopping:
            try:
                async with self._leases.hold(LEASE):
                    await self._deliver()
            except LeaseHeld:
                await self._pause(STANDBY_SECONDS)
            except LeaseLost as error:
                log.warning("webhooks_lease_lost", error=str(error))

    async def _deliver(self) -> None:
        directory = EndpointDirectory(self._reader, self._endpoint_changed)
        unlisten = self._valkey.on_invalidate(directory.on_invalidate)
        try:
            self._reading.add(asyncio.create_task(_keep_running(directory.follow)))
            for streams in streams_by_slot(self._domains):
                tail = EventTail(self._valkey, streams, directory, self._queue, self._source, self._wake)
                self._reading.add(asyncio.create_task(_keep_running(tail.run)))
            await self._stopped.wait()
            while self.busy:
                await asyncio.wait(self._sending)
        finally:
            unlisten()
            tasks = [*self._reading, *self._sending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._senders, self._reading, self._sending = {}, set(), set()

    def _wake(self, id: str) -> None:
        if id in self._senders:
            self._senders[id].wake()

    def _endpoint_changed(self, id: str, endpoint: Endpoint | None) -> None:
        """Reload the sender of an endpoint, or start one. One that was removed ends with its last request."""
        sender = self._senders.get(id)
        if sender is not None and not sender.ended:
            sender.reload(endpoint)
        elif endpoint is not None and not self.stopping:
            sender = EndpointSender(endpoint, self._queue, self._client, self._clock, self._disable)
            self._senders[id] = sender
            task = asyncio.create_task(sender.run())
            self._sending.add(task)
            task.add_done_callback(lambda task: self._sender_ended(id, task))

    def _sender_ended(self, id: str, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if id in self._senders and self._senders[id].ended:
            del self._senders[id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("webhook_sender_failed", webhook=id, exc_info=error)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()


async def _keep_running(run: Callable[[], Awaitable[None]]) -> None:
    """Run something again and again. After an error, or while Valkey is not available, with a pause."""
    while True:
        try:
            await run()
        except Unavailable as error:
            log.warning("webhooks_waiting", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)
        except Exception as error:
            log.error("webhooks_restarting", exc_info=error)
            await asyncio.sleep(PAUSE_SECONDS)
