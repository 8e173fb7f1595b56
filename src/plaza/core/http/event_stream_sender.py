"""Sends server-sent events to many clients at little cost.

An event costs one write, and no task or timer of its own: one task for all streams keeps silent ones alive, and ends
them all when the server drains. Thousands of open pages are sent to in this way.

A stream whose items have a method `position` can be resumed without a loss: it returns the id of what was sent or
skipped so far. The id is sent at the beginning and at the end, for clients that get no event in between. Such a stream
ends after `MAX_RESUMABLE_SECONDS`: the client reconnects, and its access is checked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from plaza.core.http.exchange import Exchange
from plaza.core.http.responses import encode_server_sent_event
from plaza.core.http.streaming import CancelOnDisconnect

# Proxies close a connection that is silent for a minute, many after 30 s.
KEEP_ALIVE_SECONDS = 15.0
# So long a resumable stream goes on with a key that was revoked, or for an admin who lost the role.
MAX_RESUMABLE_SECONDS = 300.0
# Streams that get a comment before other work of the event loop goes on.
KEPT_ALIVE_AT_ONCE = 50


class OpenEventStream:
    """One client. It is sent to by its own task, and in silence by the one that keeps streams alive."""

    __slots__ = ("_exchange", "_is_sending", "_items", "_task", "has_ended", "opened_at", "sent_at")

    def __init__(self, items: AsyncIterator[Any], exchange: Exchange) -> None:
        self._task = exchange.task
        self._items = items
        self._exchange = exchange
        self._is_sending = False
        self.has_ended = False
        self.opened_at = self.sent_at = asyncio.get_running_loop().time()

    @property
    def is_resumable(self) -> bool:
        return hasattr(self._items, "position")

    def position(self) -> bytes:
        """Return an id without an event, which clients store for their next request; empty if there is none."""
        id = self._items.position() if hasattr(self._items, "position") else None
        return b"" if id is None else f"id: {id}\n\n".encode()

    async def send_all(self) -> None:
        if position := self.position():
            await self._write(position)
        async for item in self._items:
            await self._write(encode_server_sent_event(item))

    async def _write(self, chunk: bytes) -> None:
        self._is_sending = True
        await self._exchange.write(chunk)
        self._is_sending = False
        self.sent_at = asyncio.get_running_loop().time()

    async def keep_alive(self) -> None:
        """Send a comment, unless the client has not read the last event yet."""
        if not self._is_sending:
            await self._write(b":\n\n")

    def end(self) -> None:
        self.has_ended = True
        self._task.cancel()

    def take_back_cancellation(self) -> bool:
        """Whether `end` cancelled the task, which may then go on."""
        return self.has_ended and self._task.uncancel() == 0


class EventStreamSender:
    """The open event streams of a process."""

    def __init__(self, draining: asyncio.Event) -> None:
        self._draining = draining
        self._open: set[OpenEventStream] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._comments: set[asyncio.Task[None]] = set()  # being sent

    async def send(self, items: AsyncIterator[Any], exchange: Exchange) -> None:
        """Send events until the handler ends, the client disconnects or the server drains."""
        stream = OpenEventStream(items, exchange)
        self._open.add(stream)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        try:
            with CancelOnDisconnect(exchange, delay=0):
                await stream.send_all()
        except asyncio.CancelledError:
            if not stream.take_back_cancellation():
                raise
        finally:
            self._open.discard(stream)
        await exchange.finish(stream.position())

    async def _watch(self) -> None:
        """Keep silent streams alive while there are any; end old ones, and all when the server drains."""
        try:
            while self._open:
                with suppress(TimeoutError):
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS / 4):
                        await self._draining.wait()
                if self._draining.is_set():
                    for stream in self._open:
                        stream.end()
                    break
                self._end_old_streams()
                await self._keep_alive()
        finally:
            self._watcher = None

    def _end_old_streams(self) -> None:
        before = asyncio.get_running_loop().time() - MAX_RESUMABLE_SECONDS
        for stream in self._open:
            if stream.is_resumable and stream.opened_at <= before and not stream.has_ended:
                stream.end()

    async def _keep_alive(self) -> None:
        before = asyncio.get_running_loop().time() - KEEP_ALIVE_SECONDS * 3 / 4
        silent = [stream for stream in self._open if stream.sent_at <= before]
        for i, stream in enumerate(silent):
            # A task of its own: a client that does not read must not hold up the others.
            task = asyncio.create_task(self._comment(stream))
            self._comments.add(task)
            task.add_done_callback(self._comments.discard)
            if i % KEPT_ALIVE_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _comment(self, stream: OpenEventStream) -> None:
        if stream in self._open:  # after its end, the comment would be the beginning of the next response
            await stream.keep_alive()
