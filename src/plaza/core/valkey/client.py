"""What a service may ask of Valkey, whether one server or a cluster is behind it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self

from plaza.core.keyspace import Layout
from plaza.core.valkey.calls import Arg
from plaza.core.valkey.dedicated import Subscription

OnInvalidate = Callable[[list[str] | None], None]


class BlockingConnection(Protocol):
    """A connection of one's own: `core/valkey/dedicated.py`."""

    async def call(self, *command: Arg, timeout: float | None = None) -> Any: ...


class InvalidationListeners:
    """Who wants to know of changed keys. One that fails does not keep the news from the others."""

    def __init__(self) -> None:
        self._callbacks: list[OnInvalidate] = []

    def add(self, callback: OnInvalidate) -> Callable[[], None]:
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def tell(self, keys: list[str] | None) -> None:
        for callback in list(self._callbacks):
            try:
                callback(keys)
            except Exception as error:
                context = {"message": "A listener to changed keys failed.", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


class Valkey(ABC):
    """What every service holds: one server or a cluster, which it need not know."""

    clustered: bool

    @property
    def layout(self) -> Layout:
        return Layout.BRACES if self.clustered else Layout.PLAIN

    @abstractmethod
    def call(
        self, *command: Arg, timeout: float | None = None, raw: bool = False, key: str | None = None
    ) -> Awaitable[Any]:
        """One command, one round trip. Text in RESP3 shapes, or with `raw` bytes in RESP2 shapes.

        `key` says where the command belongs in a cluster, for a command whose key is in an unusual place.
        """

    @abstractmethod
    def batch(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> Awaitable[list[Any]]:
        """Many commands in one round trip, not atomic; answers in order. The first error is raised, or all returned.

        One that only reads may travel beside other calls: it sees all that was answered before it was asked.
        """

    @abstractmethod
    def multi(
        self,
        commands: Sequence[Sequence[Arg]],
        *,
        timeout: float | None = None,
        raw: bool = False,
        return_errors: bool = False,
    ) -> Awaitable[list[Any]]:
        """Many commands in one atomic step and one round trip. The first error is raised, or all that ran into one."""

    def fcall(
        self,
        name: str,
        keys: Sequence[str],
        *args: Arg,
        read_only: bool = False,
        timeout: float | None = None,
        raw: bool = False,
    ) -> Awaitable[Any]:
        """Call a loaded function. One round trip."""
        return self.call("FCALL_RO" if read_only else "FCALL", name, len(keys), *keys, *args, timeout=timeout, raw=raw)

    @abstractmethod
    def tracked(
        self, *command: Arg, store: Callable[[Any], Any] | None = None, timeout: float | None = None
    ) -> Awaitable[Any]:
        """Read, and have Valkey tell `on_invalidate` when what was read changes.

        `keep(reply)` runs in reply order, so before the invalidation of any later change: store there, and nothing
        stale stays. What it returns is the answer.
        """

    async def tracked_with_batch(
        self, command: Sequence[Arg], beside: Sequence[Sequence[Arg]], store: Callable[[Any], Any]
    ) -> list[Any]:
        """A tracked read and a batch that is not tracked, side by side: all answers, the read's first."""
        reading = asyncio.ensure_future(self.tracked(*command, store=store))
        answers = await self.batch(beside)
        return [await reading, *answers]

    @abstractmethod
    def on_invalidate(self, callback: OnInvalidate) -> Callable[[], None]:
        """Be told keys that changed since their tracked read, or None if any may have. Returns how to stop."""

    @abstractmethod
    def subscribe(self, *channels: str) -> Subscription:
        """Messages of channels, on a connection of their own."""

    @abstractmethod
    def blocking(self) -> AbstractAsyncContextManager[BlockingConnection]:
        """A connection of one's own, for commands that wait on the server."""

    @abstractmethod
    def primaries(self) -> Sequence[Valkey]:
        """Each server that holds keys, for work that goes to all of them: SCAN, FUNCTION LOAD."""

    @abstractmethod
    async def ready(self) -> None:
        """Wait for the connection, for as long as a call would."""

    @abstractmethod
    async def close(self) -> None:
        """End for good. Calls that still wait fail."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
