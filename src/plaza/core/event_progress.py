"""How far a consumer group has come: what audits of its projections wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from plaza.core.event_streams import EventStream, all_streams
from plaza.core.valkey import ReplyError, Valkey

PAUSE_SECONDS: Final = 0.1
# Without any progress: a slow batch is acknowledged five times a second.
MAX_IDLE_SECONDS: Final = 5.0
# Unacknowledged events of a stream that a check reads. Progress beyond them shows when they are handled.
MAX_PENDING: Final = 100


class NoProgress(Exception):
    """Events wait, and the group handles none: perhaps no worker runs."""


class EventProgress:
    """The progress of a group in the events of some domains."""

    def __init__(self, valkey: Valkey, domains: Sequence[str], group: str) -> None:
        self._valkey = valkey
        self._domains = domains
        self._group = group

    async def has_started(self) -> bool:
        """Whether a worker has created the group in every stream."""
        return all(await asyncio.gather(*(self._delivered(stream) for stream in self._streams())))

    async def has_caught_up(self) -> bool:
        """Whether the group has handled every event."""
        return not await self._unhandled(await self._last_ids())

    async def wait(self) -> None:
        """Wait until the group has handled the events that exist now. Raises `NoProgress`.

        Under steady writes some event always waits, so later ones do not count.
        """
        await asyncio.sleep(PAUSE_SECONDS)  # an operation on a cluster emits its event a moment later
        last, before, pauses = await self._last_ids(), list[Any](), 0
        while unhandled := await self._unhandled(last):
            pauses = pauses + 1 if unhandled == before else 0
            if pauses * PAUSE_SECONDS >= MAX_IDLE_SECONDS:
                raise NoProgress
            before = unhandled
            await asyncio.sleep(PAUSE_SECONDS)

    def _streams(self) -> list[EventStream]:
        return [stream for name in self._domains for stream in all_streams(name)]

    async def _last_ids(self) -> dict[EventStream, str]:
        """Return the id of the last event of each stream that has any."""
        streams = self._streams()
        found = await self._valkey.batch([("XREVRANGE", stream.key, "+", "-", "COUNT", 1) for stream in streams])
        return {stream: rows[0][0] for stream, rows in zip(streams, found, strict=True) if rows}

    async def _unhandled(self, last: dict[EventStream, str]) -> list[Any]:
        """Return what the group has not handled of the events up to an id, in a form that changes with its progress."""
        found = await asyncio.gather(*(self._unhandled_in(stream, id) for stream, id in last.items()))
        return [each for each in found if each is not None]

    async def _unhandled_in(self, stream: EventStream, last: str) -> Any:
        delivered = await self._delivered(stream)
        if delivered is None or _order(delivered) < _order(last):
            return stream, delivered
        pending = await self._valkey.call("XPENDING", stream.key, self._group, "-", last, MAX_PENDING)
        return (stream, [entry[0] for entry in pending]) if pending else None

    async def _delivered(self, stream: EventStream) -> str | None:
        """Return the id of the last event that the group was given; None if there is no such group yet."""
        try:
            groups = await self._valkey.call("XINFO", "GROUPS", stream.key, key=stream.key)
        except ReplyError:  # there is no such stream
            return None
        return next((each["last-delivered-id"] for each in groups if each["name"] == self._group), None)


def _order(id: str) -> tuple[int, int]:
    at, _, number = id.partition("-")
    return int(at), int(number)
