"""The endpoints that a worker knows, kept up to date: Valkey reports a change of the index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from plaza.webhooks.endpoint_reader import Endpoint, EndpointReader
from plaza.webhooks.keys import WEBHOOKS


class EndpointDirectory:
    """All endpoints, by id. `on_change` is called with each endpoint that is new, changed or gone (None)."""

    def __init__(self, reader: EndpointReader, on_change: Callable[[str, Endpoint | None], None]) -> None:
        self._reader = reader
        self._on_change = on_change
        self._endpoints: dict[str, Endpoint] = {}
        self._refreshing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._changed.set()  # the first `wait_for_change` reads everything
        self.has_enabled = asyncio.Event()

    @property
    def enabled(self) -> Iterable[Endpoint]:
        return [endpoint for endpoint in self._endpoints.values() if endpoint.is_enabled]

    def on_invalidate(self, keys: list[str] | None) -> None:
        """Valkey reports that keys changed; None means any."""
        if keys is None or WEBHOOKS() in keys:
            self._changed.set()

    async def follow(self) -> None:
        """Keep the endpoints up to date."""
        while True:
            await self._changed.wait()
            await self.refresh()

    async def refresh(self) -> None:
        """Read the endpoints that were changed before this call. One round trip, or two."""
        async with self._refreshing:
            self._changed.clear()
            revisions = await self._reader.revisions()
            changed = [id for id, revision in revisions.items() if self._revision(id) != revision]
            gone = [id for id in self._endpoints if id not in revisions]
            for id, endpoint in zip(changed, await self._reader.get_many(changed), strict=True):
                self._set(id, endpoint)
            for id in gone:
                self._set(id, None)

    def _revision(self, id: str) -> str | None:
        known = self._endpoints.get(id)
        return None if known is None else known.revision

    def _set(self, id: str, endpoint: Endpoint | None) -> None:
        if endpoint is None:
            self._endpoints.pop(id, None)
        else:
            self._endpoints[id] = endpoint
        if any(True for _ in self.enabled):
            self.has_enabled.set()
        else:
            self.has_enabled.clear()
        self._on_change(id, endpoint)
