"""Publishes events on a cluster: moves an owner's queued events to their shard (`emission.lua`).

A busy owner has many operations at once, and each must publish all that is queued to keep the order. In one process
they share the work: while one call for an owner is in progress, the others wait for the next call, which has the events
of all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from plaza.core.outbox import Run

EVENT_WORDS = 7  # epoch, number, type, subject, time, data, origin


class Publication(Struct, frozen=True):
    """What an operation has to publish: where the queue and its shard are, and the events if nothing else is queued."""

    library: str
    queue: str
    stream: str
    published: str
    events: Sequence[str]
    deadline: str

    @classmethod
    def from_command(cls, library: str, command: Sequence[str], deadline: str) -> Publication:
        _, queue, stream, published, *events = command
        return cls(library, queue, stream, published, events, deadline)


class EventPublisher:
    """Publishes the events of operations of this process."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._current: dict[str, asyncio.Task[list[str]]] = {}  # by queue
        self._next: dict[str, asyncio.Task[list[str]]] = {}

    async def publish(self, publication: Publication) -> list[str]:
        """Publish all queued events of an owner. Returns what is published, for `settle`: epoch, last number, ….

        One round trip if the events are given, else two.
        """
        queue = publication.queue
        if (waiting := self._next.get(queue)) is not None:
            return await _result(waiting)  # it has not read the queue yet
        if (current := self._current.get(queue)) is None:
            return await _result(self._start(publication))
        self._next[queue] = asyncio.create_task(self._publish_after(current, publication))
        return await _result(self._next[queue])

    def _start(self, publication: Publication) -> asyncio.Task[list[str]]:
        """Start the only call of an owner: `_next` waits for it, and everybody else for `_next`."""
        task = self._current[publication.queue] = asyncio.create_task(self._publish(publication))
        task.add_done_callback(lambda _: self._current.pop(publication.queue))
        return task

    async def _publish_after(self, current: asyncio.Task[list[str]], publication: Publication) -> list[str]:
        """Wait for the call in progress, which may lack our events, then publish what is queued."""
        await asyncio.wait([current])
        del self._next[publication.queue]
        unread = Publication(publication.library, publication.queue, publication.stream, publication.published, (), "")
        return await _result(self._start(unread))

    async def _publish(self, publication: Publication) -> list[str]:
        if publication.events:
            return await self._append(publication, publication.deadline, publication.events)
        while True:
            deadline, more, *events = await self._call(publication, "queued_events", [publication.queue])
            covered = await self._append(publication, deadline, events) if events else []
            if not more:
                return covered
            await self._call(publication, "unqueue_events", [publication.queue], *covered)

    async def _append(self, publication: Publication, deadline: str, events: Sequence[str]) -> list[str]:
        await self._call(publication, "publish_events", [publication.stream, publication.published], deadline, *events)
        last = {events[i]: events[i + 1] for i in range(0, len(events), EVENT_WORDS)}
        return [word for pair in last.items() for word in pair]

    async def _call(self, publication: Publication, function: str, keys: list[str], *args: str) -> Any:
        return await self._run(f"{publication.library}_{function}", keys, args)


async def _result(task: asyncio.Task[list[str]]) -> list[str]:
    """Wait for a task that others wait for too. A caller that is cancelled does not cancel it."""
    task.add_done_callback(_retrieve)
    await asyncio.wait([task])
    return task.result()


def _retrieve(task: asyncio.Task[list[str]]) -> None:
    """Take notice of an error even if every caller was cancelled: their outbox entries are recovered later."""
    if not task.cancelled():
        task.exception()
