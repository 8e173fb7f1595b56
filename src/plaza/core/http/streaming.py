"""Streamed responses, and the detection of clients that disconnect.

A stream ends when its handler ends, when the client disconnects, or when the server drains (event streams only: their
clients reconnect by themselves). In each case the handler's generator is closed, so its `finally` runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from plaza.core.http.exchange import ClientDisconnected, Exchange

# Most reads end sooner, and watching for a disconnect over ASGI costs a task.
WATCH_DELAY_SECONDS = 0.02


class CancelOnDisconnect:
    """Cancels the task of an exchange when its client disconnects, and raises `ClientDisconnected` instead.

    For reads only: a write that has started always completes.
    """

    __slots__ = ("_delay", "_exchange", "_is_disconnected")

    def __init__(self, exchange: Exchange, delay: float = WATCH_DELAY_SECONDS) -> None:
        self._exchange = exchange
        self._delay = delay
        self._is_disconnected = False

    def _cancel(self) -> None:
        self._is_disconnected = True
        self._exchange.task.cancel()

    def __enter__(self) -> None:
        self._exchange.watch(self._cancel, self._delay)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._exchange.unwatch()
        if self._is_disconnected and kind is asyncio.CancelledError and self._exchange.task.uncancel() == 0:
            raise ClientDisconnected from error


async def close(items: AsyncIterator[Any]) -> None:
    """Close a handler's generator, whether it has started or not."""
    aclose = getattr(items, "aclose", None)
    if aclose is not None:
        await aclose()


async def send_chunks(items: AsyncIterator[Any], exchange: Exchange) -> None:
    """Send `bytes` or `str` chunks as fast as the client reads them."""
    with CancelOnDisconnect(exchange, delay=0):
        async for item in items:
            await exchange.write(item.encode() if isinstance(item, str) else item)
    await exchange.finish()
