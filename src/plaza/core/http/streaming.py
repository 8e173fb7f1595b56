"""Streamed responses, and the detection of clients that disconnect.

A stream ends when its handler ends, when the client disconnects, or when the server drains (event streams only: their
clients reconnect by themselves). In each case the handler's generator is closed, so its `finally` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from plaza.core.http.body_reader import ClientDisconnected, Receive

Send = Callable[[dict[str, Any]], Awaitable[None]]

# Most reads end sooner, and watching for a disconnect costs a task.
WATCH_DELAY_SECONDS = 0.02


async def disconnected(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


class CancelOnDisconnect:
    """Cancels the task that entered it when the client disconnects, and raises `ClientDisconnected` instead.

    For reads only: a write that has started always completes.
    """

    __slots__ = ("_disconnected", "_receive", "_start", "_task", "_watcher")

    def __init__(self, receive: Receive, delay: float = WATCH_DELAY_SECONDS) -> None:
        self._receive = receive
        self._disconnected = False
        self._watcher: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._start = loop.call_later(delay, self._begin)

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        await disconnected(self._receive)
        self._disconnected = True
        self._task.cancel()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._start.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._disconnected and kind is asyncio.CancelledError and self._task.uncancel() == 0:
            raise ClientDisconnected from error


async def close(items: AsyncIterator[Any]) -> None:
    """Close a handler's generator, whether it has started or not."""
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()


async def send_chunks(items: AsyncIterator[Any], receive: Receive, send: Send) -> None:
    """Send `bytes` or `str` chunks as fast as the client reads them."""
    with CancelOnDisconnect(receive, delay=0):
        async for item in items:
            chunk = item.encode() if isinstance(item, str) else item
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
