"""Answers that come in pieces, and noticing that nobody reads them any more.

A stream ends when its handler ends, when the client hangs up, or (events only, whose clients come back by themselves)
when the server drains. In each case the handler's generator is closed, so its `finally` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

from plaza.core.http.request_body import ClientGone, Receive
from plaza.core.http.responses import encode_event

Send = Callable[[dict[str, Any]], Awaitable[None]]

# Proxies cut a connection that is silent for a minute, many for 30 s.
KEEP_ALIVE_SECONDS = 15.0

# A read that takes longer than this is worth watching for a client that left; a shorter one is not worth the watch.
WATCH_AFTER_SECONDS = 0.02


async def disconnected(receive: Receive) -> None:
    """Returns when the client has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Watch:
    """Cancels the task that entered it when its client hangs up, and then raises `ClientGone` in place of the cancel.

    For reads only: a write that has begun runs to its end, whoever is there to hear of it.
    """

    __slots__ = ("_gone", "_receive", "_start", "_task", "_watcher")

    def __init__(self, receive: Receive, after: float = WATCH_AFTER_SECONDS) -> None:
        self._receive = receive
        self._gone = False
        self._watcher: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._start = loop.call_later(after, self._begin)

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        await disconnected(self._receive)
        self._gone = True
        self._task.cancel()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._start.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._gone and kind is asyncio.CancelledError and self._task.uncancel() == 0:
            raise ClientGone from error


async def close(items: AsyncIterator[Any]) -> None:
    """Let a handler's generator clean up, whether it has begun or not."""
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()


async def send_chunks(items: AsyncIterator[Any], receive: Receive, send: Send) -> None:
    """Pieces of `bytes` or `str`, as they come, as fast as the client takes them."""
    with Watch(receive, after=0):
        async for item in items:
            chunk = item.encode() if isinstance(item, str) else item
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def send_events(items: AsyncIterator[Any], receive: Receive, send: Send, draining: asyncio.Event) -> None:
    """Server-sent events, with a comment now and then so that no proxy takes silence for death."""
    gone = asyncio.ensure_future(disconnected(receive))
    stop = asyncio.ensure_future(draining.wait())
    item = asyncio.ensure_future(anext(items, _END))
    try:
        while True:
            await asyncio.wait({gone, stop, item}, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientGone
            if stop.done() or (item.done() and item.result() is _END):
                break
            chunk = encode_event(item.result()) if item.done() else b":\n\n"
            if item.done():
                item = asyncio.ensure_future(anext(items, _END))
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        for waiting in (gone, stop, item):
            waiting.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await waiting


_END = object()
